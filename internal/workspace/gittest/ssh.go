package gittest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
)

// SSH is a server of OpenSSH, for this process's user.
type SSH struct {
	// Host is its address with the port, User the user that logs in.
	Host, User string
	// Key is the private key that may log in, KnownHosts the line with the server's key.
	Key, KnownHosts string
}

// NewSSH starts a server. It skips the test if OpenSSH is not installed (scripts/packages openssh-server).
func NewSSH(t testing.TB) *SSH {
	t.Helper()
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd, err = exec.LookPath("/usr/sbin/sshd")
	}
	if err != nil {
		t.Skip("needs an sshd: run scripts/packages openssh-server")
	}
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, name := range []string{"server", "caller"} {
		run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name))
	}
	if os.Getuid() == 0 { // sshd run by root needs this directory to drop privileges
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := listener.Addr().String()
	_, port, _ := net.SplitHostPort(host)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config")
	text := fmt.Sprintf("ListenAddress %s\nHostKey %s/server\nAuthorizedKeysFile %s/caller.pub\nPidFile none\n"+
		"StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n", host, dir, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command(sshd, "-D", "-e", "-f", config)
	log := new(strings.Builder)
	server.Stderr = log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill() // only this test uses it
		_ = server.Wait()
		if t.Failed() {
			t.Logf("sshd wrote:\n%s", log)
		}
	})
	testwait.NoError(t, 10*time.Second, "sshd answers", func() error {
		conn, err := net.Dial("tcp", host)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return &SSH{Host: host, User: run("id", "-un"), Key: read("caller"),
		KnownHosts: fmt.Sprintf("[127.0.0.1]:%s %s", port, read("server.pub"))}
}

// URL is the URL of a repository at a path.
func (s *SSH) URL(path string) string { return "ssh://" + s.User + "@" + s.Host + path }
