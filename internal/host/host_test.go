package host_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// tree creates files, directories ("dir/") and links ("name -> target") in a new directory.
func tree(t *testing.T, entries ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	for _, e := range entries {
		name, link, isLink := strings.Cut(e, " -> ")
		at := filepath.Join(dir, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755))
		switch {
		case isLink:
			err = errors.Join(err, os.Symlink(link, at))
		case strings.HasSuffix(e, "/"):
			err = errors.Join(err, os.MkdirAll(at, 0o755))
		default:
			err = errors.Join(err, os.WriteFile(at, []byte("content of "+name), 0o640))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func newHost(t *testing.T, c host.Config) *host.Host {
	t.Helper()
	h, err := host.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// wantRefused checks that exactly one field is wrong, and its problem.
func wantRefused(t *testing.T, err error, field, says string) {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != sandbox.Invalid || len(e.Fields) != 1 || e.Fields[0].Name != field ||
		!strings.Contains(e.Fields[0].Problem, says) {
		t.Errorf("the error is %v, want %s: %s", err, field, says)
	}
}

func mounts(source string) sandbox.HostAccess {
	return sandbox.HostAccess{Mounts: []sandbox.Mount{{Source: source, Target: "/mnt"}}}
}

func copies(source, target string) sandbox.Copy { return sandbox.Copy{Source: source, Target: target} }

func TestNothingIsAllowedUnlessItIsNamed(t *testing.T) {
	t.Parallel()
	dir := tree(t, "file", "sub/")
	for name, h := range map[string]*host.Host{
		"no host":           nil,
		"an empty one":      newHost(t, host.Config{}),
		"another directory": newHost(t, host.Config{Directories: []string{t.TempDir()}}),
	} {
		wantRefused(t, h.Check(name, mounts(dir)), "mounts[0].source", "--mount-allow")
		wantRefused(t, h.Check(name, sandbox.HostAccess{Copies: []sandbox.Copy{copies(dir, "/data")}}),
			"copies[0].source", "--mount-allow")
		wantRefused(t, h.Check(name, sandbox.HostAccess{EnvPassthrough: []string{"PATH"}}),
			"env_passthrough[0]", "--env-allow PATH")
	}
	if err := newHost(t, host.Config{Directories: []string{dir}}).Check("",
		mounts(filepath.Join(dir, "sub"))); err != nil {
		t.Error(err)
	}
}

func TestALinkLeadsToNothingThatIsNotAllowed(t *testing.T) {
	t.Parallel()
	outside := tree(t, "secret")
	dir := tree(t, "sub/", "out -> "+outside, "in -> sub", "up -> ../", "neighbour/")
	h := newHost(t, host.Config{Directories: []string{filepath.Join(dir, "sub"), filepath.Join(dir, "in")}})
	wantRefused(t, h.Check("", mounts(filepath.Join(dir, "out"))), "mounts[0].source", "leads to "+outside)
	wantRefused(t, h.Check("", mounts(filepath.Join(dir, "up"))), "mounts[0].source", "--mount-allow")
	wantRefused(t, h.Check("", mounts(dir)), "mounts[0].source", "--mount-allow")
	wantRefused(t, h.Check("", mounts(filepath.Join(dir, "sub", "absent"))), "mounts[0].source", "does not exist")
	resolved, err := h.Mounts(mounts(filepath.Join(dir, "in")))
	if err != nil || resolved[0].Source != filepath.Join(dir, "sub") {
		t.Errorf("an allowed link is %v: %v", resolved, err)
	}
	// A link that is created after the environment.
	if err := errors.Join(os.Remove(filepath.Join(dir, "sub")),
		os.Symlink(outside, filepath.Join(dir, "sub"))); err != nil {
		t.Fatal(err)
	}
	_, err = h.Mounts(mounts(filepath.Join(dir, "sub")))
	wantRefused(t, err, "mounts[0].source", "leads to "+outside)
}

func TestADirectoryIsOpenedOnlyWithinAnAllowedOne(t *testing.T) {
	other := tree(t, "secret")
	dir := tree(t, "app/file", "app/out -> "+other+"/secret", "in -> app", "out -> "+other)
	h := newHost(t, host.Config{Directories: []string{dir}})
	for _, name := range []string{"/app", "/in"} {
		root, resolved, err := h.OpenDirectory(dir + name)
		if err != nil || resolved != dir+"/app" {
			t.Fatalf("%s is %s: %v", name, resolved, err)
		}
		if _, err := root.Stat("file"); err != nil {
			t.Error(err)
		}
		if _, err := root.Stat("out"); err == nil {
			t.Error("a link leads out of the directory")
		}
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, p := range []string{dir + "/out", other, "/", dir + "/none", dir + "/app/file", "app"} {
		if _, _, err := h.OpenDirectory(p); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%s ends with %v", p, err)
		}
	}
	if _, _, err := (*host.Host)(nil).OpenDirectory(dir); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("where nothing is allowed, the error is %v", err)
	}
}

func TestWhatGivesTheMachineAwayCannotBeAllowed(t *testing.T) {
	t.Parallel()
	link := tree(t, "etc -> /etc")
	for _, dir := range []string{
		"/", "/etc", "/etc/ssl", "/proc", "/var", "/var/run", "/run", filepath.Join(link, "etc"),
		"relative", filepath.Join(link, "absent"),
	} {
		if _, err := host.New(host.Config{Directories: []string{dir}}); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%s is allowed: %v", dir, err)
		}
	}
}

func TestVariablesAreReadWhereTheServiceRuns(t *testing.T) {
	t.Parallel()
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"LANG": "C", "EMPTY": ""}[name]
		return v, ok
	}
	h := newHost(t, host.Config{Variables: []string{"LANG", "EMPTY", "UNSET"}, LookupEnv: lookup})
	env, err := h.Env(sandbox.HostAccess{EnvPassthrough: []string{"LANG", "EMPTY"}})
	if err != nil || len(env) != 2 || env["LANG"] != "C" {
		t.Errorf("they are %v: %v", env, err)
	}
	wantRefused(t, h.Check("", sandbox.HostAccess{EnvPassthrough: []string{"LANG", "UNSET"}}),
		"env_passthrough[1]", "not set")
	all := newHost(t, host.Config{Variables: []string{"*"}, LookupEnv: lookup})
	if env, err := all.Env(sandbox.HostAccess{EnvPassthrough: []string{"LANG"}}); err != nil || env["LANG"] != "C" {
		t.Errorf("of all that are allowed: %v: %v", env, err)
	}

	// All variables that are allowed by name and set, except those that no sandbox may have.
	every := sandbox.HostAccess{EnvPassthrough: []string{"*"}, EnvBlocked: []string{"empty"}}
	names := []string{"LANG", "EMPTY", "UNSET", "DATABASE_URL"}
	named := newHost(t, host.Config{Variables: names, LookupEnv: func(name string) (string, bool) {
		if v, ok := lookup(name); ok {
			return v, ok
		}
		return "secret", name == "DATABASE_URL"
	}})
	if env, err := named.Env(every); err != nil || len(env) != 1 || env["LANG"] != "C" {
		t.Errorf("of all by name: %v: %v", env, err)
	}
	wantRefused(t, all.Check("", every), "env_passthrough[0]", "name the variables")
	wantRefused(t, newHost(t, host.Config{}).Check("", every), "env_passthrough[0]", "no variable is allowed")
}

// unpacked lists a copy's entries.
func unpacked(t *testing.T, h *host.Host, c sandbox.Copy) (dir string, entries []string) {
	t.Helper()
	dir, stream, err := h.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	for tr := tar.NewReader(stream); ; {
		e, err := tr.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(entries)
			return dir, entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, strings.TrimSpace(e.Name+" "+e.Linkname+string(content)))
	}
}

func TestACopyIsThatOfItsSourceAlone(t *testing.T) {
	t.Parallel()
	outside := tree(t, "secret")
	dir := tree(t, "rules/a", "rules/deep/b", "rules/out -> "+outside+"/secret", "neighbour")
	h := newHost(t, host.Config{Directories: []string{dir}})
	at, entries := unpacked(t, h, copies(filepath.Join(dir, "rules"), "/workspace/rules"))
	if want := []string{
		"a content of rules/a", "deep", "deep/b content of rules/deep/b", "out " + outside + "/secret",
	}; at != "/workspace/rules" || !slices.Equal(entries, want) {
		t.Errorf("into %s: %q, want %q", at, entries, want)
	}
	at, entries = unpacked(t, h, copies(filepath.Join(dir, "neighbour"), "/data/other"))
	if want := []string{"other content of neighbour"}; at != "/data" || !slices.Equal(entries, want) {
		t.Errorf("into %s: %q, want %q", at, entries, want)
	}
}
