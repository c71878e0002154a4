// Package registrytest runs real container registries for tests: Debian's docker-registry on the loopback
// interface, with or without password and TLS.
package registrytest

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// startTimeout limits how long a registry may take to listen.
const startTimeout = time.Minute

// Username and Password are the credentials of a registry with Options.Auth.
const (
	Username = "games"
	Password = "hunter2-of-the-registry"
)

// Options configure a registry. The zero value allows anonymous writes in clear text.
type Options struct {
	Auth bool // requires Username and Password
	TLS  bool // with a certificate signed by Registry.CA
	Keep bool // refuses removals
}

// Registry is a running registry.
type Registry struct {
	// Host is host:port, the first part of references.
	Host string
	// CA is the CA certificate in PEM, empty without TLS.
	CA     string
	t      testing.TB
	dir    string
	config map[string]any
	http   map[string]any // part of config
	cmd    *exec.Cmd
	// read is closed at the end of the registry's log, that is, when the registry has ended.
	read chan struct{}
}

// Start starts an empty registry. It ends with the test.
func Start(t testing.TB, o Options) *Registry {
	t.Helper()
	r := &Registry{t: t, dir: t.TempDir(), Host: "127.0.0.1:0"}
	r.config = r.configure(o)
	t.Cleanup(r.Stop)
	r.Restart()
	return r
}

// Restart restarts a stopped registry at the same address with its content.
func (r *Registry) Restart() {
	r.t.Helper()
	r.http["addr"] = r.Host
	text, err := json.Marshal(r.config) // JSON is valid YAML
	r.must(err)
	file := filepath.Join(r.dir, "config.yml")
	r.write(file, string(text))
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		r.t.Fatalf("start a registry: %v (run scripts/packages docker-registry)", err)
	}
	r.cmd = exec.Command(program, "serve", file)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // even if this process is killed
	log, err := r.cmd.StderrPipe()
	r.must(err)
	r.must(r.cmd.Start())
	address := make(chan string, 1)
	r.read = make(chan struct{})
	go func() {
		defer close(r.read)
		follow(log, address)
	}()
	select {
	case r.Host = <-address:
	case <-r.read:
		r.t.Fatal("start a registry: it ended before it listened")
	case <-time.After(startTimeout):
		r.t.Fatalf("start a registry: it does not listen after %s", startTimeout)
	}
}

var listening = regexp.MustCompile(`listening on ([0-9.]+:[0-9]+)`)

// follow reads a registry's log to its end, and sends the listen address.
func follow(log io.Reader, address chan<- string) {
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if found := listening.FindSubmatch(lines.Bytes()); found != nil {
			address <- string(found[1])
		}
	}
}

// Stop ends the registry. Its content is kept until the test ends.
func (r *Registry) Stop() {
	if r.cmd == nil || r.cmd.ProcessState != nil {
		return
	}
	r.must(r.cmd.Process.Kill())
	<-r.read
	if err := r.cmd.Wait(); err == nil {
		r.t.Errorf("the registry ended on its own")
	}
}

func (r *Registry) configure(o Options) map[string]any {
	r.http = map[string]any{"secret": "none"}
	if o.TLS {
		r.http["tls"] = r.certificate()
	}
	config := map[string]any{
		"version": "0.1", "http": r.http, "log": map[string]any{"accesslog": map[string]any{"disabled": true}},
		"storage": map[string]any{
			"filesystem": map[string]any{"rootdirectory": filepath.Join(r.dir, "data")},
			"delete":     map[string]any{"enabled": !o.Keep},
		},
	}
	if o.Auth {
		hash, err := bcrypt.GenerateFromPassword([]byte(Password), bcrypt.MinCost)
		r.must(err)
		users := filepath.Join(r.dir, "htpasswd")
		r.write(users, fmt.Sprintf("%s:%s\n", Username, hash))
		config["auth"] = map[string]any{"htpasswd": map[string]any{"realm": "games", "path": users}}
	}
	return config
}

// certificate writes net/http/httptest's self-signed certificate for the loopback interface.
func (r *Registry) certificate() map[string]string {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	own := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	r.must(err)
	r.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]}))
	files := map[string]string{"certificate": filepath.Join(r.dir, "tls.crt"), "key": filepath.Join(r.dir, "tls.key")}
	r.write(files["certificate"], r.CA)
	r.write(files["key"], string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	return files
}

func (r *Registry) write(path, content string) {
	r.must(os.WriteFile(path, []byte(content), 0o600))
}

func (r *Registry) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("start a registry: %v", err)
	}
}
