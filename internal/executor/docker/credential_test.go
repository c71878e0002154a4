package docker_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// gitServer is a Git server and an npm registry that require a token. Only programs that know its own authority trust
// it.
type gitServer struct {
	authority  string // in PEM
	repository string // the directory of /repo.git

	mu      sync.Mutex
	headers []http.Header
}

func serveGit(t *testing.T, address, token string) *gitServer {
	t.Helper()
	dir := t.TempDir()
	g := &gitServer{repository: filepath.Join(dir, "repo.git")}
	git(t, dir, "init", "--quiet", "--bare", "--initial-branch=main", "repo.git")
	git(t, g.repository, "config", "http.receivepack", "true")
	backend := &cgi.Handler{
		Path: strings.TrimSpace(git(t, dir, "--exec-path")) + "/git-http-backend",
		Env:  []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=ann"},
	}
	certificate, packages := g.issue(t), npmPackage(t)
	l, err := net.Listen("tcp", address+":443")
	must(t, err)
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.mu.Lock()
			g.headers = append(g.headers, r.Header)
			g.mu.Unlock()
			user, password, ok := r.BasicAuth()
			switch {
			case !ok || user != "x-access-token" || password != token:
				w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
				http.Error(w, "who are you?", http.StatusUnauthorized)
			case strings.HasPrefix(r.URL.Path, "/npm/"):
				packages.ServeHTTP(w, r)
			case r.URL.Path == "/whoami":
				_, _ = fmt.Fprintln(w, "you are", user)
			default:
				backend.ServeHTTP(w, r)
			}
		}),
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return g
}

// issue creates the authority and the server's certificate.
func (g *gitServer) issue(t *testing.T) tls.Certificate {
	t.Helper()
	sign := func(template, parent *x509.Certificate, by *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		if by == nil {
			by = key
		}
		template.SerialNumber, template.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
		must(t, err)
		return der, key
	}
	root := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, by := sign(root, root, nil)
	g.authority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	leaf, key := sign(&x509.Certificate{DNSNames: []string{"git.test"}}, root, by)
	return tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: key}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "git", args...)
	c.Dir = dir
	var errOut bytes.Buffer
	c.Stderr = &errOut
	out, err := c.Output()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, errOut.String())
	}
	return string(out)
}

// TestASandboxUsesAGitServerWithoutItsToken runs unmodified git, curl and, with SANDBOX_TEST_ALL, node and npm with its
// registry, in a sandbox without the token.
func TestASandboxUsesAGitServerWithoutItsToken(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("user 0 is needed to serve Git on port 443")
	}
	helper := strings.TrimSpace(git(t, t.TempDir(), "--exec-path")) + "/git-remote-https"
	programs := []string{"git", "curl", helper}
	withNode := os.Getenv("SANDBOX_TEST_ALL") != ""
	if withNode {
		programs = append(programs, "node")
	}
	files := append(dockertest.BusyboxFiles(t), dockertest.Programs(t, programs...)...)
	if withNode {
		files = append(files, npmFiles(t)...)
	}
	w := newModelWorld(t, dockertest.Keep(t, files, "ENV PATH=/bin"))
	server := serveGit(t, w.host, w.key)
	brokered := func(s *sandbox.EnvironmentSpec) {
		s.LLM, s.Network = nil, sandbox.NetworkRestricted
		s.Egress = &sandbox.Egress{
			Allow: []sandbox.EgressRule{{Host: "git.test"}},
			Credentials: map[string]sandbox.EgressCredential{
				"git.test": {Secret: "model_key", Scheme: sandbox.CredentialBasic, Username: "x-access-token"},
			},
			Authorities: server.authority,
		}
	}
	w.put(t, brokered)
	l := w.acquire(t)
	const identity = "-c user.name=Ann -c user.email=ann@test "
	got := w.sh(t, l, "cd /workspace && git clone --quiet https://git.test/repo.git 2>&1 && cd repo && echo 1 > score && "+
		"git add . && git "+identity+"commit --quiet -m 'The score' && git push --quiet origin HEAD:main && git fetch && echo done")
	if !strings.HasSuffix(got, "done\n") {
		t.Fatalf("git shows %s", got)
	}
	if log := git(t, server.repository, "log", "--format=%an %s", "main"); log != "Ann The score\n" {
		t.Errorf("the server has %q", log)
	}
	// Without the variable, programs find the host in the hosts file. Node's fetch uses no proxy in any case.
	const direct = "env -u HTTPS_PROXY -u https_proxy "
	commands := map[string]string{
		"curl":                       "curl -sS https://git.test/whoami",
		"curl, with one of its own":  "curl -sS -u mine:mine https://git.test/whoami",
		"curl, without the variable": direct + "curl -sS https://git.test/whoami",
	}
	if withNode {
		commands["node"] = direct +
			`node -e "fetch('https://git.test/whoami').then(r => r.text()).then(t => process.stdout.write(t))" 2>&1`
	}
	for program, command := range commands {
		if got := w.sh(t, l, command); got != "you are x-access-token\n" {
			t.Errorf("%s shows %q", program, got)
		}
	}
	if withNode {
		got := w.sh(t, l, "mkdir /workspace/game && cd /workspace/game && node /npm/bin/npm-cli.js install --no-audit "+
			"--no-fund --registry https://git.test/npm/ secret-dice 2>&1 && node -p 'require(\"secret-dice\")'")
		if !strings.HasSuffix(got, "\nsix sides\n") {
			t.Errorf("npm shows %s", got)
		}
	}
	w.wantKeyNowhere(t, l)

	// A killed gateway has the credential again before a reconciler's next pass ends.
	must(t, w.api.ContainerKill(t.Context(), w.gatewayName(), "KILL"))
	eventually(t, "the gateway has the credential again", func() bool {
		err := w.engine.CollectEgress(t.Context(), sandbox.Docker) // it fails until the gateway runs again
		return err == nil && w.sh(t, l, "curl -sS https://git.test/whoami 2>&1") == "you are x-access-token\n"
	})
	w.put(t, func(s *sandbox.EnvironmentSpec) { brokered(s); s.Egress.Credentials, s.Egress.Authorities = nil, "" })
	if got := w.sh(t, l, "curl -sSk https://git.test/whoami"); got != "who are you?\n" {
		t.Errorf("without the credential: %q", got)
	}
}
