//go:build linux

package keeper_test

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
)

const endsLeader = "ATTACK_LEADER"

func init() {
	if os.Getenv(endsLeader) != "" {
		runtime.LockOSThread()                            // init runs on the first thread
		go func() { time.Sleep(time.Hour); os.Exit(0) }() //nolint:forbidigo // this program runs until it is killed
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
	}
}

// TestAProgramWhoseFirstThreadHasEndedEndsInTime uses a program that looks like a zombie but is none.
func TestAProgramWhoseFirstThreadHasEndedEndsInTime(t *testing.T) {
	b := start(t, options{run: []string{"-v", attacker(t) + ":/attacker:ro"}})
	began := time.Now()
	_, errOut, res := b.exec(t, channel.Request{ID: "leader", Exec: &channel.Exec{
		Args: []string{"/attacker"}, Cwd: "/workspace", Timeout: time.Second, Env: map[string]string{endsLeader: "1"},
	}}, "")
	if took := time.Since(began); !res.TimedOut || took > 5*time.Second {
		t.Errorf("%s %+v after %s", errOut, res, took)
	}
	if out, _, _ := b.run(t, "ps | grep -c '[a]ttacker'"); strings.TrimSpace(out) != "0" {
		t.Errorf("%s processes survive", out)
	}
}
