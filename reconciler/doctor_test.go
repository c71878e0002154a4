package reconciler_test

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/daemon"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// patient is a directory with the files that doctor checks.
type patient struct {
	*testing.T
	dir string
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	p := &patient{T: t, dir: t.TempDir()}
	p.write("tokens", "test "+access.NewToken()+"\n")
	p.write("secrets", webhook.NewSecret()+"\n")
	return p
}

func (p *patient) write(name, content string) {
	p.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
		p.Fatal(err)
	}
}

// see runs doctor and returns its findings by subject, and its error.
func (p *patient) see(args ...string) (map[string]reconciler.Symptom, error) {
	p.Helper()
	cmd := daemon.NewDoctorCommand(cli.Config{})
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{
		"--output", "json", "--listen", "127.0.0.1:0", "--ledger", "sqlite://" + p.dir + "/deep/ledger.db",
		"--token-file", p.dir + "/tokens", "--webhook-secret-file", p.dir + "/secrets",
	}, args...))
	ended := cmd.ExecuteContext(p.Context())
	var list []reconciler.Symptom
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		p.Fatalf("%v: %q, and it ended with %v", err, out.String(), ended)
	}
	found := make(map[string]reconciler.Symptom)
	for _, s := range list {
		found[s.Subject] = s
	}
	return found, ended
}

// want checks one finding.
func (p *patient) want(found map[string]reconciler.Symptom, subject string, v reconciler.Verdict, says string) {
	p.Helper()
	s := found[subject]
	if s.Verdict != v || !strings.Contains(s.Found+" "+s.Advice, says) {
		p.Errorf("finding for %s is %+v, want %s and %q", subject, s, v, says)
	}
}

func TestADoctorFindsNothingWrongAndMakesNothing(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	found, err := p.see()
	if err != nil {
		t.Errorf("%v: %+v", err, found)
	}
	p.want(found, "tokens", reconciler.VerdictOK, "1 in ")
	p.want(found, "webhook secrets", reconciler.VerdictOK, "1 in ")
	p.want(found, "ledger", reconciler.VerdictOK, "none yet")
	p.want(found, "state", reconciler.VerdictOK, "the directory of file://")
	p.want(found, "disk", reconciler.VerdictOK, "MiB are free")
	p.want(found, "engine", reconciler.VerdictOK, "Docker ")
	p.want(found, "limits", reconciler.VerdictOK, "memory")
	p.want(found, "clock of the engine", reconciler.VerdictOK, "differs from this machine's")
	if _, err := os.Stat(p.dir + "/deep"); !os.IsNotExist(err) {
		t.Errorf("it created the ledger's directory: %v", err)
	}
}

func TestADoctorSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.write("secrets", webhook.NewSecret()+" not_after="+time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)+"\n")
	if err := os.Chmod(p.dir+"/tokens", 0o644); err != nil { //nolint:gosec // the defect to find
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	go func() { // the program at the address is not a reconciler
		for {
			c, err := taken.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	p.write("ledger.db", "not a database, but as long as the header of one: "+strings.Repeat("x", 100))
	found, err := p.see("--listen", taken.Addr().String(), "--docker-host", "unix://"+p.dir+"/absent.sock",
		"--ledger", "sqlite://"+p.dir+"/ledger.db", "--secret-key-file", p.dir+"/none", "--docker-price-book", p.dir+"/none",
		"--state-url", "s3://none?region=none&endpoint=http://127.0.0.1:1", "--mount-allow", p.dir+"/none",
		"--trusted-proxy", "10.0.0.1", "--oidc-issuer", "https://login.example.com", "--oidc-client-id", "sandbox",
		"--oidc-client-secret-file", p.dir+"/none",
		"--oidc-redirect-url", "https://sandbox.example.com/ui/login/oidc/callback", "--oidc-role", "ops=admin")
	if sandbox.CodeOf(err) != sandbox.Failed {
		t.Errorf("it ended with %v", err)
	}
	p.want(found, "tokens", reconciler.VerdictProblem, "chmod 600")
	p.want(found, "webhook secrets", reconciler.VerdictProblem, "signed conditions are rejected")
	p.want(found, "secret keys", reconciler.VerdictProblem, "none")
	p.want(found, "host", reconciler.VerdictProblem, "none")
	p.want(found, "prices", reconciler.VerdictProblem, "none")
	p.want(found, "address", reconciler.VerdictProblem, "in use")
	p.want(found, "ledger", reconciler.VerdictProblem, "not a database")
	p.want(found, "state", reconciler.VerdictProblem, "credentials")
	p.want(found, "engine", reconciler.VerdictProblem, "absent.sock")
	p.want(found, "proxies", reconciler.VerdictProblem, "want a network such as")
	p.want(found, "logins", reconciler.VerdictProblem, p.dir+"/none")
	found, _ = p.see("--workspace-allow", "git.example.com", "--workspace-known-hosts", p.dir+"/none")
	p.want(found, "workspaces", reconciler.VerdictProblem, p.dir+"/none")
}

func TestADoctorNamesWhatServeTrusts(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.write("oidc-secret", "a secret of this test\n")
	found, err := p.see("--trusted-proxy", "10.0.0.0/8", "--workspace-allow", "git.example.com",
		"--oidc-issuer", "https://login.example.com", "--oidc-client-id", "sandbox",
		"--oidc-client-secret-file", p.dir+"/oidc-secret",
		"--oidc-redirect-url", "https://sandbox.example.com/ui/login/oidc/callback", "--oidc-role", "ops=admin")
	if err != nil {
		t.Errorf("%v: %+v", err, found)
	}
	p.want(found, "proxies", reconciler.VerdictOK, "10.0.0.0/8")
	p.want(found, "logins", reconciler.VerdictOK, "https://login.example.com")
	p.want(found, "workspaces", reconciler.VerdictOK, "git.example.com")
}

func TestADoctorWarnsOfPlainText(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	i := newInstall(t)
	i.certify(1)
	for _, test := range []struct {
		listen  string
		tls     bool
		verdict reconciler.Verdict
		says    string
	}{
		{"127.0.0.1:0", false, reconciler.VerdictOK, "is free"},
		{"localhost:0", false, reconciler.VerdictOK, "is free"},
		{"0.0.0.0:0", true, reconciler.VerdictOK, "is free"},
		{"0.0.0.0:0", false, reconciler.VerdictWarning, "without TLS"},
	} {
		args := []string{"--insecure", "--listen", test.listen}
		if test.tls {
			args = append(args, "--tls-cert", i.Dir+"/cert.pem", "--tls-key", i.Dir+"/key.pem")
		}
		found, _ := p.see(args...)
		p.want(found, "address", test.verdict, test.says)
	}
}

func TestADoctorLooksAtAUnixSocket(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	dir, err := os.MkdirTemp("", "s") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	taken, err := net.Listen("unix", dir+"/taken")
	if err != nil {
		t.Fatal(err)
	}
	go func() { // the program at the address is not a reconciler
		for {
			c, err := taken.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	defer taken.Close()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/stale"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false) // like the socket of a killed reconciler
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		verdict reconciler.Verdict
		says    string
	}{
		"/free":      {reconciler.VerdictOK, "is free"},
		"/stale":     {reconciler.VerdictOK, "is free"},
		"/taken":     {reconciler.VerdictProblem, "another program serves"},
		"/file":      {reconciler.VerdictProblem, "not a socket"},
		"/none/free": {reconciler.VerdictProblem, "no such file or directory"},
		"/file/free": {reconciler.VerdictProblem, "not a directory"},
	} {
		found, _ := p.see("--listen", "unix://"+dir+path)
		p.want(found, "address", want.verdict, want.says)
	}
	for _, name := range []string{"/stale", "/file"} {
		if _, err := os.Stat(dir + name); err != nil {
			t.Errorf("it has removed %s: %v", name, err)
		}
	}
}

func TestADoctorKnowsTheReconcilerThatServes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	p := newPatient(t)
	found, err := p.see("--listen", strings.TrimPrefix(w.url, "http://"), "--ledger", w.config.LedgerURL)
	if err != nil {
		t.Errorf("%v: %+v", err, found)
	}
	p.want(found, "address", reconciler.VerdictOK, "a reconciler serves")
	p.want(found, "ledger", reconciler.VerdictOK, "schema ")
}

func TestADoctorLooksAtPostgreSQL(t *testing.T) {
	t.Parallel()
	url := postgrestest.Start(t).URL(t)
	p := newPatient(t)
	found, err := p.see("--ledger", url)
	if err != nil {
		t.Errorf("%v: %+v", err, found)
	}
	p.want(found, "ledger", reconciler.VerdictOK, "none yet at postgres://")
	p.want(found, "clock of PostgreSQL", reconciler.VerdictOK, "differs from this machine's")
	p.want(found, "secret keys", reconciler.VerdictWarning, "--secret-key-file")
	p.want(found, "state", reconciler.VerdictWarning, "--state-url")
	store, err := ledger.Open(t.Context(), url, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	id := store.ID()
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	found, _ = p.see("--ledger", url)
	p.want(found, "ledger", reconciler.VerdictOK, id+", schema ")
}
