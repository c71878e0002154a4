package sdk_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// library is a library as users get it: packed, and installed from the package.
type library struct {
	name string
	// driver, example, readme and project are commands. They run the suite's driver, the example of the guide, and the
	// code in the READMEs of the library and of the project.
	driver, example, readme, project []string
	// table runs the lines of the guide's comparison with other systems; Python only.
	table []string
	// env are additional variables of the driver.
	env []string
}

// installed are the libraries. They are packed once for all tests.
var installed = sync.OnceValues(func() (made struct{ python, typescript library }, err error) {
	dir, err := os.MkdirTemp("", "sandbox-libraries")
	if err != nil {
		return made, err
	}
	packed = dir
	made.python, err = installPython(filepath.Join(dir, "python"))
	if err == nil {
		made.typescript, err = installTypeScript(filepath.Join(dir, "typescript"))
	}
	return made, err
})

// packed is the temporary directory of installed; "" for none.
var packed string

func libraries(t *testing.T) []library {
	t.Helper()
	if os.Getenv("SANDBOX_TEST_ALL") == "" {
		t.Skip("set SANDBOX_TEST_ALL=1: it installs Debian and npm packages")
	}
	made, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	return []library{made.python, made.typescript}
}

// installPython builds a wheel with the system's Python, without a network, and installs it in a new environment.
func installPython(dir string) (l library, err error) {
	const python = "/usr/bin/python3"
	env, readme, project, table := filepath.Join(dir, "env"), filepath.Join(dir, "readme.py"),
		filepath.Join(dir, "project.py"), filepath.Join(dir, "table.py")
	err = steps(dir, "python", [][]string{
		{"../scripts/packages", "python3-pip", "python3-setuptools", "python3-venv", "python3-wheel", "mypy"},
		{"cp", "-r", "python", filepath.Join(dir, "source")},
		{python, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation",
			"--wheel-dir", filepath.Join(dir, "wheel"), filepath.Join(dir, "source")},
		{python, "-m", "venv", env},
		{"sh", "-c", env + "/bin/pip install --quiet --no-index " + dir + "/wheel/*.whl"},
		{"/usr/bin/mypy", "--config-file", "python/pyproject.toml", "python/sandbox_lease"},
		{"sh", "-c", blocks("python", "python/README.md") + " >" + readme},
		{"sh", "-c", blocks("python", "../README.md") + " >" + project},
		{"sh", "-c", `awk -F '[|]' '/^\| task /,/^$/ {print $3}' ../templates/guides/libraries.md.tmpl |` +
			" sed -n 's/^ `\\(.*\\)` $/\\1/p' >" + table + " && echo 'print(moves, float(cost) >= 0)' >>" + table},
		{"/usr/bin/mypy", "--strict", "--python-executable", env + "/bin/python", "../examples/libraries/example.py", readme,
			project, table},
	})
	return library{
		name:    "Python",
		driver:  []string{env + "/bin/python", "testdata/driver.py"},
		example: []string{env + "/bin/python", "../examples/libraries/example.py"},
		readme:  []string{env + "/bin/python", readme},
		project: []string{env + "/bin/python", project},
		table:   []string{env + "/bin/python", table},
	}, err
}

// installTypeScript packs the library with npm, installs it in a new directory, and compiles the programs that use it.
func installTypeScript(dir string) (l library, err error) {
	source, app := filepath.Join(dir, "source"), filepath.Join(dir, "app")
	err = steps(dir, "typescript", [][]string{
		{"mkdir", "-p", source, app},
		{"cp", "-r", "typescript/package.json", "typescript/package-lock.json", "typescript/tsconfig.json",
			"typescript/README.md", "typescript/src", source},
		{"npm", "--prefix", source, "ci", "--no-audit", "--no-fund", "--ignore-scripts"},
		{"sh", "-c", "cd " + source + " && npm pack --pack-destination " + app},
		{"sh", "-c", "cd " + app + ` && echo '{"private": true, "type": "module"}' >package.json` +
			" && npm install --no-audit --no-fund ./*.tgz"},
		{"cp", "testdata/driver.ts", "testdata/tsconfig.json", "../examples/libraries/example.ts", app},
		{"sh", "-c", blocks("ts", "typescript/README.md") + " >" + app + "/readme.ts"},
		{"sh", "-c", blocks("ts", "../README.md") + " >" + app + "/project.ts"},
		{source + "/node_modules/.bin/tsc", "--project", app},
	})
	return library{
		name:    "TypeScript",
		driver:  []string{"node", app + "/driver.js"},
		example: []string{"node", app + "/example.js"},
		readme:  []string{"node", app + "/readme.js"},
		project: []string{"node", app + "/project.js"},
	}, err
}

// blocks returns a command that prints the code blocks of a language in a Markdown file.
func blocks(language, file string) string {
	return "awk '/^```" + language + "$/ {on = 1; next} /^```$/ {on = 0} on' " + file
}

func steps(dir, what string, commands [][]string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, c := range commands {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %s: %w\n%s", what, strings.Join(c, " "), err, out)
		}
	}
	return nil
}

// driver performs the operations of the suite with one library.
type driver interface {
	// do calls line with each line of output as it arrives.
	do(op string, args args, line func(stream, text string)) (any, *failure)
}

type args map[string]any

// failure is an error in the form of a library.
type failure struct {
	Code, Reason, Message string
	Fields                []string
	Retryable             bool
	RequestID             bool `json:"request_id"`
}

// process is a driver in another language.
type process struct {
	*testing.T
	in  *json.Encoder
	out *bufio.Scanner
	cmd *exec.Cmd
}

// limit is how long a driver may be silent.
const limit = 2 * time.Minute

func (l library) start(w *world) driver {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), l.driver[0], l.driver[1:]...)
	cmd.Env = slices.Concat(os.Environ(), w.variables(), l.env)
	cmd.Stderr = &testLog{t: w.T}
	in, err := cmd.StdinPipe()
	if err != nil {
		w.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // ends with its input or the test
	})
	p := &process{T: w.T, in: json.NewEncoder(in), out: bufio.NewScanner(out), cmd: cmd}
	p.out.Buffer(nil, 64<<20)
	return p
}

func (p *process) do(op string, a args, line func(stream, text string)) (any, *failure) {
	p.Helper()
	request := map[string]any{"op": op}
	for name, value := range a {
		request[name] = value
	}
	if err := p.in.Encode(request); err != nil {
		p.Fatalf("%s: %v", op, err)
	}
	for {
		silent := time.AfterFunc(limit, func() { _ = p.cmd.Process.Kill() })
		more := p.out.Scan()
		silent.Stop()
		if !more {
			p.Fatalf("%s: the driver has ended (%v)", op, p.out.Err())
		}
		var answer struct {
			OK           any
			Error        *failure
			Line, Stream *string
		}
		if err := json.Unmarshal(p.out.Bytes(), &answer); err != nil {
			p.Fatalf("%s: %v: %s", op, err, p.out.Bytes())
		}
		if answer.Line == nil {
			return answer.OK, answer.Error
		}
		line(*answer.Stream, *answer.Line)
	}
}

// example runs the example of a library.
func (w *world) example(l library) {
	w.Helper()
	source := "../examples/libraries/example.py"
	if l.name == "TypeScript" {
		source = "../examples/libraries/example.ts"
	}
	content, err := os.ReadFile(source)
	if err != nil {
		w.Fatal(err)
	}
	if n := strings.Count(string(content), "\n"); n > 8 {
		w.Errorf("%s has %d lines", source, n)
	}
	cmd := exec.CommandContext(w.Context(), l.example[0], l.example[1:]...)
	cmd.Env = append(os.Environ(), w.variables()...)
	cmd.Stderr = &testLog{t: w.T}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	const lease = "did:plc:ada::catan-7"
	var printed []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if printed = append(printed, lines.Text()); len(printed) > 1 {
			continue
		}
		running, err := w.direct.ListExecs(w.Context(), sandbox.ExecFilter{LeaseID: lease, State: sandbox.ExecRunning})
		if err != nil || len(running) != 1 {
			w.Errorf("when the first line was printed, %d commands ran (%v)", len(running), err)
		}
	}
	if err := cmd.Wait(); err != nil {
		w.Fatal(err)
	}
	if want := []string{"move 1", "move 2", "move 3"}; !slices.Equal(printed, want) {
		w.Errorf("it printed %q", printed)
	}
	if l, err := w.direct.GetLease(w.Context(), lease); err != nil || l.Status != sandbox.LeaseDestroyed {
		w.Errorf("at the end, the lease is %s (%v)", l.Status, err)
	}
}
