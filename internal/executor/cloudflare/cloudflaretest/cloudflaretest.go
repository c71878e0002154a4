// Package cloudflaretest runs the Worker on this machine, for tests. Miniflare starts the real runtime, workerd, with
// real containers on the local Docker Engine. Containers are called workerd-NAME-Sandbox-…, and are removed with the
// Worker.
//
// It cannot prove Cloudflare's own behavior: capacity, instance sizes, rollouts, when a Durable Object is evicted from
// memory, and whether a container without internet access really has none.
package cloudflaretest

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localaccount"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// patience bounds every wait for the server; it is generous because test machines are busy.
const patience = 3 * time.Minute

// Config configures a Server. Its zero value runs the built Worker with sandboxes of busybox.
type Config struct {
	// NoKey deploys the Worker without SIGNING_KEY.
	NoKey bool
	// Key and Instance are the values that the Worker is deployed with; empty means generated ones.
	Key      sandbox.Secret
	Instance string
	// OlderKey is another key that the Worker accepts; empty means none.
	OlderKey sandbox.Secret
	// Image is the image of sandboxes; empty means busybox with the guest.
	Image string
	// Script is a Worker to run in place of the built one. Its Durable Object's class must also be called Sandbox.
	Script string
	// Append is code that is appended to the Worker's, such as a change of the platform's interfaces.
	Append string
	// Check is the interval of alarms of awake sandboxes; zero means that of deployments.
	Check time.Duration
	// Outside is the address of a server that stands in for the Internet: requests of the Worker go there, with the header
	// X-Outside-Origin. Empty means the Internet.
	Outside string
}

// Server is a running Worker.
type Server struct {
	URL, Instance string
	Key           sandbox.Secret
	// Stop ends the Worker and its containers. The end of the test also calls it.
	Stop func()

	t       testing.TB
	name    string
	answers <-chan string
	mu      sync.Mutex // guards stdin
	stdin   io.Writer
}

// Need skips a test unless SANDBOX_TEST_ALL is set.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv("SANDBOX_TEST_ALL") == "" {
		t.Skip("needs Node.js and the built Worker: run make worker and set SANDBOX_TEST_ALL=1, or run make test-all")
	}
}

// Start runs a Worker until the test ends. It skips the test unless SANDBOX_TEST_ALL is set. It fails the test if
// Node.js or a build is missing, and says what to do.
func Start(t testing.TB, cfg Config) *Server {
	t.Helper()
	Need(t)
	if err := localaccount.CheckEngine(t.Context(), dockertest.Engine(t)); err != nil {
		t.Fatal(err)
	}
	script := []byte(cfg.Script)
	if cfg.Script == "" {
		built, err := cloudflare.Script()
		if err != nil {
			t.Fatal(err)
		}
		script = built
	}
	s := &Server{
		t:        t,
		Instance: cmp.Or(cfg.Instance, "account-"+sandbox.RandomIDs(8)),
		Key:      cmp.Or(cfg.Key, sandbox.Secret(sandbox.RandomIDs(40))),
	}
	key := s.Key
	if cfg.NoKey {
		key = ""
	}
	if cfg.Image == "" {
		cfg.Image = Busybox(t)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "worker.js")
	if err := os.WriteFile(path, slices.Concat(script, []byte(cfg.Append)), 0o600); err != nil {
		t.Fatal(err)
	}
	name := "test-" + sandbox.RandomIDs(8)
	s.name = name
	config, err := json.Marshal(map[string]string{
		"check":    milliseconds(cfg.Check),
		"name":     name,
		"script":   path,
		"state":    filepath.Join(dir, "state"),
		"key":      string(key),
		"older":    string(cfg.OlderKey),
		"instance": s.Instance,
		"image":    cfg.Image,
		"sidecar":  sidecar(t),
		"engine":   engine(t),
		"outside":  cfg.Outside,
	})
	if err != nil {
		t.Fatal(err)
	}
	end := s.run(string(config))
	s.Stop = sync.OnceFunc(func() {
		end()
		dockertest.RemoveNamed(t, "workerd-"+name+"-") // workerd leaves them
	})
	t.Cleanup(s.Stop)
	s.read()
	return s
}

// milliseconds formats a duration for the Worker, "" for zero.
func milliseconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return strconv.FormatInt(d.Milliseconds(), 10)
}

// run starts the server. The server ends when end closes its standard input.
func (s *Server) run(config string) (end func()) {
	s.t.Helper()
	program := filepath.Join(workerDir(s.t), "local.mjs")
	if _, err := os.Stat(filepath.Join(filepath.Dir(program), "node_modules", "miniflare")); err != nil {
		s.t.Fatalf("the Worker's packages are not installed: run make worker (%v)", err)
	}
	cmd := exec.Command("node", program, config)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("run the Worker: %v (install Node.js 20 or later: https://nodejs.org)", err)
	}
	answers := make(chan string)
	go func() { // ends with the server
		defer close(answers)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			answers <- lines.Text()
		}
	}()
	s.stdin, s.answers = stdin, answers
	return func() {
		if err := stdin.Close(); err != nil {
			s.t.Errorf("end the Worker: %v", err)
		}
		limit := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }) // it may have ended
		defer limit.Stop()
		for range answers { // late answers have no reader
		}
		if err := cmd.Wait(); err != nil {
			s.t.Errorf("the Worker's server ended with %v", err)
		}
	}
}

// read reads the server's address from its next answer.
func (s *Server) read() {
	s.t.Helper()
	var answer struct {
		URL string `json:"url"`
	}
	if line := s.line(); json.Unmarshal([]byte(line), &answer) != nil || answer.URL == "" {
		s.t.Fatalf("the Worker's server did not come up: %q", line)
	}
	s.URL = strings.TrimSuffix(answer.URL, "/")
}

// line returns the next line that the server writes, "" if it has ended.
func (s *Server) line() string {
	s.t.Helper()
	select {
	case line := <-s.answers:
		return line
	case <-time.After(patience):
		s.t.Fatalf("the Worker's server does not answer after %s", patience)
		return ""
	}
}

// Query queries the Worker's database.
func (s *Server) Query(statement string) []map[string]any {
	s.t.Helper()
	command, err := json.Marshal(map[string]string{"query": statement})
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.stdin.Write(append(command, '\n')); err != nil {
		s.t.Fatal(err)
	}
	var rows []map[string]any
	if line := s.line(); json.Unmarshal([]byte(line), &rows) != nil {
		s.t.Fatalf("%s: the database answers %s", statement, line)
	}
	return rows
}

// Reset evicts the Worker and its Durable Objects from memory, as a deployment does. Containers keep running.
func (s *Server) Reset() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.WriteString(s.stdin, `"reset"`+"\n"); err != nil {
		s.t.Fatal(err)
	}
	s.read()
}

// InMemory counts the sandboxes whose Durable Objects are in memory. It sends them no request: the runtime keeps the
// database of an object open while the object is in memory.
func (s *Server) InMemory() int {
	s.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		s.t.Fatal(err)
	}
	open := map[string]bool{}
	for _, f := range files {
		to, _ := os.Readlink(f) // a process may end at any time
		dir, name := filepath.Split(to)
		if filepath.Base(dir) == s.name+"-Sandbox" && name != "metadata.sqlite" && filepath.Ext(name) == ".sqlite" {
			open[name] = true
		}
	}
	return len(open)
}

// Worker returns a client of the server.
func (s *Server) Worker() *cloudflare.Worker {
	s.t.Helper()
	w, err := cloudflare.NewWorker(cloudflare.WorkerConfig{URL: s.URL, Key: s.Key})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := w.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return w
}

// Busybox returns an image for environments: busybox with the guest.
func Busybox(t testing.TB) string {
	t.Helper()
	program, err := guest.Binary(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	files := append(dockertest.BusyboxFiles(t),
		dockertest.File{Name: ".sandbox/", Mode: 0o755},
		dockertest.File{Name: ".sandbox/guest", Mode: 0o755, Content: program}, dockertest.File{Name: "run/", Mode: 0o755})
	for dir, mode := range map[string]int64{"workspace/": 0o755, "data/": 0o755, "run/secrets/": 0o700} {
		files = append(files, dockertest.File{Name: dir, Mode: mode, UID: 1000, GID: 1000})
	}
	// The local runtime reaches only exposed ports. It needs an image without an entrypoint, which would precede the
	// command that the Worker starts.
	return dockertest.Keep(t, files, "ENV PATH=/bin", "USER 0:0", fmt.Sprintf("EXPOSE %d", guest.Port))
}

// Crash kills a container behind the Worker's back, and returns once the engine has ended it. It finds the container by
// its host name, which is that of its sidecar.
func Crash(t testing.TB, hostname string) {
	t.Helper()
	dockertest.KillBeside(t, hostname, "-proxy")
}

func sidecar(t testing.TB) string {
	t.Helper()
	ref, err := localaccount.Sidecar(t.Context(), dockertest.Engine(t))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func engine(t testing.TB) string {
	t.Helper()
	host := dockertest.Engine(t).DaemonHost()
	if !strings.HasPrefix(host, "unix://") {
		t.Fatalf("the engine is at %s: workerd reaches one by a Unix socket only", host)
	}
	return host
}

// workerDir returns the Worker's directory, in the module that contains the test's directory.
func workerDir(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for root := dir; ; root = filepath.Dir(root) {
		worker := filepath.Join(root, "internal/executor/cloudflare/worker")
		if _, err := os.Stat(worker); err == nil {
			return worker
		}
		if root == filepath.Dir(root) {
			t.Fatalf("no directory above %s has the Worker", dir)
		}
	}
}
