package reconciler_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTheServiceManagerIsToldHowItStands(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(i.dir, "notify")})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket := filepath.Join(i.dir, "api.sock")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+listener.LocalAddr().String(), argsVar+"="+strings.Join([]string{"--listen", "unix://" + socket,
		"--ledger", "sqlite://" + i.dir + "/ledger.db", "--token-file", i.dir + "/tokens", "--webhook-secret-file", i.dir + "/secrets"}, " "))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}()
	told := func() string {
		t.Helper()
		message := make([]byte, 4096)
		if err := listener.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := listener.Read(message)
		if err != nil {
			t.Fatal(err)
		}
		return string(message[:n])
	}
	if got := told(); !strings.HasPrefix(got, "READY=1\nSTATUS=Serving on ") || !strings.Contains(got, socket) {
		t.Errorf("at first it tells %q", got)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatalf("it is ready and does not answer: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := told(); got != "STOPPING=1" {
		t.Errorf("at last it tells %q", got)
	}
}
