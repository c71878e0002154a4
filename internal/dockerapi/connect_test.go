package dockerapi_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/cli/cli/config"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// cli is a test's configuration of the docker CLI.
type cli struct {
	*testing.T
	dir string
}

// newCLI gives a test an environment without a Docker engine.
func newCLI(t *testing.T) cli {
	t.Helper()
	for _, name := range []string{
		"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_API_VERSION",
	} {
		t.Setenv(name, "")
	}
	before := config.Dir()
	c := cli{t, t.TempDir()}
	config.SetDir(c.dir)
	t.Cleanup(func() { config.SetDir(before) })
	return c
}

func (c cli) write(path string, content []byte) {
	c.Helper()
	path = filepath.Join(c.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		c.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		c.Fatal(err)
	}
}

// context creates a context, like `docker context create`.
func (c cli) context(name, host string, files map[string][]byte) {
	c.Helper()
	sum := sha256.Sum256([]byte(name))
	id := hex.EncodeToString(sum[:])
	c.write("contexts/meta/"+id+"/meta.json",
		fmt.Appendf(nil, `{"Name":%q,"Metadata":{},"Endpoints":{"docker":{"Host":%q,"SkipTLSVerify":false}}}`, name, host))
	for file, content := range files {
		c.write("contexts/tls/"+id+"/docker/"+file, content)
	}
}

func (c cli) wantHost(what, host, context, want string) {
	c.Helper()
	api, err := dockerapi.Connect(host, context)
	if err != nil {
		c.Errorf("%s: %v", what, err)
		return
	}
	defer func() { _ = api.Close() }() // it was never connected
	if got := api.DaemonHost(); got != want {
		c.Errorf("%s: it speaks to %s, want %s", what, got, want)
	}
}

func TestTheEngineIsFoundAsTheDockerCLIFindsIt(t *testing.T) {
	c := newCLI(t)
	c.wantHost("nothing is configured", "", "", "unix:///var/run/docker.sock")
	c.context("current", "tcp://current:2375", nil)
	c.context("other", "tcp://other:2375", nil)
	c.write("config.json", []byte(`{"currentContext":"current"}`))
	c.wantHost("a context is current", "", "", "tcp://current:2375")
	t.Setenv("DOCKER_CONTEXT", "other")
	c.wantHost("DOCKER_CONTEXT is set", "", "", "tcp://other:2375")
	t.Setenv("DOCKER_HOST", "tcp://env:2375")
	c.wantHost("DOCKER_HOST is set", "", "", "tcp://env:2375")
	c.wantHost("a context is given", "", "current", "tcp://current:2375")
	c.wantHost("the default context is given", "", "default", "tcp://env:2375")
	c.wantHost("an address is given", "unix:///run/given.sock", "current", "unix:///run/given.sock")
	if _, err := dockerapi.Connect("", "absent"); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a context that does not exist was answered %v", err)
	}
}

// TestTheEngineIsReachedWithTheCertificatesOfAContextOrOfTheEnvironment uses a server that requires a certificate.
func TestTheEngineIsReachedWithTheCertificatesOfAContextOrOfTheEnvironment(t *testing.T) {
	c := newCLI(t)
	files, pair := dockertest.Certificate(t)
	host := "tcp://" + serve(t, pair)
	c.context("secured", host, files)
	c.context("plain", host, nil)
	for file, content := range files {
		c.write("certs/"+file, content)
	}
	reach := func(host, context string) error {
		api, err := dockerapi.Connect(host, context)
		if err != nil {
			return err
		}
		defer func() { _ = api.Close() }() // the answer is what matters
		_, err = api.Ping(t.Context())
		return err
	}
	if err := reach("", "secured"); err != nil {
		t.Errorf("with the context's certificates: %v", err)
	}
	if err := reach("", "plain"); err == nil {
		t.Error("the server answers without a certificate")
	}
	t.Setenv("DOCKER_CERT_PATH", filepath.Join(c.dir, "certs"))
	t.Setenv("DOCKER_TLS_VERIFY", "1")
	if err := reach(host, ""); err != nil {
		t.Errorf("with the certificates of DOCKER_CERT_PATH: %v", err)
	}
}

// serve serves an engine that requires the certificate, and returns its address.
func serve(t *testing.T, pair tls.Certificate) string {
	t.Helper()
	trusted := x509.NewCertPool()
	trusted.AddCert(pair.Leaf)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.41")
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    trusted,
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// TestAnEngineIsReachedThroughSSH replaces ssh with a program that writes its arguments to a file.
func TestAnEngineIsReachedThroughSSH(t *testing.T) {
	c := newCLI(t)
	c.write("ssh", []byte("#!/bin/sh\necho \"$@\" >"+filepath.Join(c.dir, "called")+"\n"))
	if err := os.Chmod(filepath.Join(c.dir, "ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", c.dir+":"+os.Getenv("PATH"))
	api, err := dockerapi.Connect("ssh://ops@engine.example.com", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }() // it was never connected
	if _, err := api.Info(t.Context()); err == nil {
		t.Fatal("a program that says nothing counts as an engine")
	}
	called, err := os.ReadFile(filepath.Join(c.dir, "called"))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(called); !strings.Contains(got, "-l ops") ||
		!strings.Contains(got, "engine.example.com docker system dial-stdio") {
		t.Errorf("ssh was called with %s", got)
	}
}

// The error names an unreachable engine and the cause. The client's own text has neither the cause nor advice.
func TestAnEngineThatIsNotReachedIsExplained(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close() // so that its port refuses connections
	socket := filepath.Join(t.TempDir(), "docker.sock")
	for host, cause := range map[string]string{
		"tcp://" + closed.Addr().String(): "connect: connection refused",
		"unix://" + socket:                "connect: no such file or directory",
	} {
		api, err := dockerapi.Connect(host, "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = api.Info(t.Context())
		said := fmt.Sprint(dockerapi.Explain(err))
		if !strings.HasPrefix(said, "no connection to the Docker engine at "+host+" (") || strings.Contains(said, "running") ||
			!strings.Contains(said, cause+"). Start the engine") || !dockerapi.IsUnreachable(err) {
			t.Errorf("got %q", said)
		}
		_ = api.Close() // it was never connected
	}
}
