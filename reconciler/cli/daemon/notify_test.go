package daemon_test

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/servetest"
)

func TestTheServiceManagerIsNotified(t *testing.T) {
	t.Parallel()
	i := servetest.New(t)
	listener, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: filepath.Join(i.Dir, "notify")})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket := filepath.Join(i.Dir, "api.sock")
	cmd := i.Command(t.Context(), "serve", "--listen", "unix://"+socket, "--ledger", "sqlite://"+i.Dir+"/ledger.db")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+listener.LocalAddr().String())
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}()
	notification := func() string {
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
	if got := notification(); !strings.HasPrefix(got, "READY=1\nSTATUS=Serving on ") || !strings.Contains(got, socket) {
		t.Errorf("the first notification is %q", got)
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
	if got := notification(); got != "STOPPING=1" {
		t.Errorf("the last notification is %q", got)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(log.String(),
		`msg="reconciler: stopping" cause="terminated signal received"`) {
		t.Errorf("%v: the log does not name the signal:\n%s", err, log.String())
	}
}
