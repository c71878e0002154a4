package cloudflaretest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// nginxConfig passes WebSockets on and keeps nginx's default buffering: a request arrives once its body is complete.
const nginxConfig = `
daemon off;
user root;
worker_processes 1;
error_log stderr error;
pid pid;
events {}
http {
	access_log off;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	map $http_upgrade $connection_upgrade {
		default upgrade;
		"" close;
	}
	server {
		listen %s;
		location / {
			proxy_pass %s;
			proxy_http_version 1.1;
			proxy_set_header Upgrade $http_upgrade;
			proxy_set_header Connection $connection_upgrade;
		}
	}
}
`

// NeedNginx returns the path of nginx, and skips a test without one.
func NeedNginx(t testing.TB) (program string) {
	t.Helper()
	program = os.Getenv("SANDBOX_TEST_NGINX")
	if program == "" {
		t.Skip("needs nginx: set SANDBOX_TEST_NGINX=$(scripts/nginx .tmp/nginx), or run make test-long")
	}
	return program
}

// Nginx starts nginx before a server, and returns its address. It ends with end, or with the test.
func Nginx(t testing.TB, program, server string) (url string, end func()) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	socket, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, l.Addr(), server), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-e", "stderr", "-p", dir, "-c", config)
	cmd.Stderr = os.Stderr
	// nginx takes over the socket, as if from an older nginx.
	cmd.ExtraFiles, cmd.Env = []*os.File{socket}, append(os.Environ(), "NGINX=3;")
	if err := cmd.Start(); err != nil {
		t.Fatalf("run nginx: %v", err)
	}
	for _, c := range []interface{ Close() error }{socket, l} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	end = sync.OnceFunc(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("end nginx: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("nginx ended with %v", err)
		}
	})
	t.Cleanup(end)
	return "http://" + l.Addr().String(), end
}
