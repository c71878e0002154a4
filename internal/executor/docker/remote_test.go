package docker_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestSandboxesOfAnEngineBehindTLS(t *testing.T) {
	engine := dockertest.NewProxy(t)
	files, pair := dockertest.Certificate(t)
	dir := t.TempDir()
	for name, content := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	t.Setenv("DOCKER_CERT_PATH", dir)
	t.Setenv("DOCKER_TLS_VERIFY", "1")
	trusted := x509.NewCertPool()
	trusted.AddCert(pair.Leaf)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted,
	})
	must(t, err)
	front := dockertest.NewCuttableProxyOn(t, listener, engine.Host())
	usesRemote(t, front.Host(), engine, front.Cut)
}

func TestSandboxesOfAnEngineBehindSSH(t *testing.T) {
	engine, server := dockertest.NewProxy(t), gittest.NewSSH(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	front := dockertest.NewCuttableProxyOn(t, listener, "tcp://"+server.Host)
	address := strings.TrimPrefix(front.Host(), "tcp://")
	// OpenSSH reads its settings from the home directory in the user database, which a test must not change.
	ssh, err := exec.LookPath("ssh")
	must(t, err)
	dir := t.TempDir()
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	_, key, _ := strings.Cut(server.KnownHosts, " ")
	for name, content := range map[string]string{
		"key":   server.Key,
		"known": fmt.Sprintf("[127.0.0.1]:%s %s\n", port, key),
		"ssh": fmt.Sprintf("#!/bin/sh\nexec %s -F none -i %[2]s/key -o IdentitiesOnly=yes -o UserKnownHostsFile=%[2]s/known "+
			"\"$@\"\n", ssh, dir),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	must(t, os.Chmod(filepath.Join(dir, "ssh"), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	usesRemote(t, "ssh://"+server.User+"@"+address+strings.TrimPrefix(engine.Host(), "unix://"), engine, front.Cut)
}

// usesRemote creates, uses and ends a sandbox on the engine at host. cut breaks all connections to it. Its requests
// arrive at engine.
func usesRemote(t *testing.T, host string, engine *dockertest.Proxy, cut func()) {
	t.Helper()
	carrier := regexp.MustCompile(`^POST .*/containers/[^/]+/exec$`)
	c := &counter{}
	engine.Set(c.count)
	x := newExecutorOn(t, host)
	w := newWorldOf(t, x, dockertest.Busybox(t), func(*sandbox.EnvironmentSpec) {})
	h := w.spawn(t)
	u := user{newExecutorOn(t, host), h} // another reconciler
	t.Cleanup(func() { must(t, u.x.Close()) })
	carriers, began := 0, time.Now()
	for _, made := range c.during(t, func() error { return u.command(t.Context()) }) {
		if carrier.MatchString(made) {
			carriers++
		}
	}
	// On a slow line, the first attempt is given up after 3 s. Then the relay is probed and a second attempt is made.
	most := 1
	if time.Since(began) > 3*time.Second {
		most = 3
	}
	if carriers < 1 || carriers > most {
		t.Errorf("the first command makes %d execs, want at most %d; one of them carries all later commands", carriers, most)
	}
	for name, use := range u.operations() {
		if made := c.during(t, func() error { return use(t.Context()) }); len(made) != 0 {
			t.Errorf("%s: requests to the engine: %q", name, made)
		}
	}
	outlives(t, u.x, h, cut)
	must(t, u.detached(t.Context()))
	must(t, u.archives(t.Context()))
	must(t, u.x.Kill(t.Context(), h))
	_, err := x.Inspect(t.Context(), h)
	wantCode(t, err, sandbox.NotFound)
}
