//go:build linux

package keeper_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

func TestCommandsRunAndReport(t *testing.T) {
	b := start(t, options{})
	out, errOut, res := b.run(t, "id -u; pwd; echo oops >&2; exit 3")
	if out != "1879050930\n/workspace\n" || errOut != "oops\n" || res.ExitCode != 3 || res.StdoutBytes != int64(len(out)) {
		t.Errorf("%q, %q, %+v", out, errOut, res)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	if out, errOut, res := b.exec(t, channel.Request{ID: "echo", Exec: line("cat")}, big); out != big ||
		res.ExitCode != 0 {
		t.Errorf("1 MiB comes back as %d bytes, %q, %+v", len(out), errOut, res)
	}
	res, err := b.call(channel.Request{ID: "echo", Op: channel.OpExec, Exec: line("echo again")}, channel.Streams{})
	if err != nil || res.ExitCode != 0 && res.Problem != wire.ProblemConflict {
		t.Errorf("a repetition: %+v, %v", res, err)
	}
	var kept strings.Builder
	follow := channel.Request{ID: "echo", Op: channel.OpFollow, Follow: &channel.Follow{StdoutOffset: 10}}
	if _, err := b.call(follow, channel.Streams{Stdout: &kept}); err != nil || kept.String() != big[10:] {
		t.Errorf("%d bytes are kept, %v", kept.Len(), err)
	}
	_, errOut, res = b.exec(t,
		channel.Request{ID: "none", Exec: &channel.Exec{Args: []string{"no-such-program"}, Cwd: "/workspace"}}, "")
	if res.ExitCode != 127 || !strings.Contains(errOut, "no-such-program") {
		t.Errorf("no program: %q, %+v", errOut, res)
	}
	_, errOut, res = b.exec(t,
		channel.Request{ID: "outside", Exec: &channel.Exec{Args: []string{"true"}, Cwd: "/etc"}}, "")
	if res.ExitCode != 126 || !strings.Contains(errOut, "working directory") {
		t.Errorf("outside: %q, %+v", errOut, res)
	}
	_, _, res = b.exec(t, channel.Request{ID: "shell", Exec: &channel.Exec{
		Args: []string{"cd /data; export A='b c'; exit 4"}, Shell: true, Cwd: "/workspace", Timeout: time.Minute}}, "")
	if res.Shell == nil || res.Shell.Cwd != "/data" || res.Shell.Set["A"] != "b c" || res.ExitCode != 4 {
		t.Errorf("shell: %+v, %+v", res, res.Shell)
	}
	for _, user := range []string{"65533:1", "1:65533", "0:0", "5:0", "x"} {
		r := channel.Request{
			ID:   "user " + user,
			Op:   channel.OpExec,
			Exec: &channel.Exec{Args: []string{"id"}, Cwd: "/workspace", User: user},
		}
		if res, err := b.call(r, channel.Streams{}); err != nil || res.Problem != wire.ProblemInvalid {
			t.Errorf("user %s: %+v, %v", user, res, err)
		}
	}
}

// Input may arrive before process 1 has created its command.
func TestNoInputIsLostWhenManyCommandsStartAtOnce(t *testing.T) {
	b := start(t, options{})
	const clients, each = 16, 20
	var all errgroup.Group
	for client := range clients {
		all.Go(func() error {
			for i := range each {
				want := fmt.Sprintf("%d of %d", i, client)
				var out strings.Builder
				r := channel.Request{ID: want, Op: channel.OpExec, Exec: &channel.Exec{
					Args: []string{"cat"}, Cwd: "/workspace", Stdin: true, Timeout: 20 * time.Second}}
				res, err := b.call(r, channel.Streams{Stdin: strings.NewReader(want), Stdout: &out})
				if err != nil {
					return err
				}
				if res.ExitCode != 0 || out.String() != want {
					return fmt.Errorf("cat of %q wrote %q: %+v", want, out.String(), res)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
}

func TestATimeoutEndsAllThatACommandStarted(t *testing.T) {
	b := start(t, options{})
	const daemon = "for i in 1 2 3; do setsid sleep 1234 & done; "
	began := time.Now()
	_, _, res := b.exec(t, channel.Request{ID: "late", Exec: &channel.Exec{
		Args: []string{"sh", "-c", daemon + "sleep 1234"}, Cwd: "/workspace", Timeout: 300 * time.Millisecond}}, "")
	if !res.TimedOut || res.ExitCode != 124 || time.Since(began) > 20*time.Second {
		t.Errorf("%+v after %s", res, time.Since(began))
	}
	if out, _, _ := b.run(t, "ps | grep -c '[s]leep 1234'"); strings.TrimSpace(out) != "0" {
		t.Errorf("%s processes survive", out)
	}
	b.run(t, daemon+"true")
	if out, _, _ := b.run(t, "ps | grep -c '[s]leep 1234'"); strings.TrimSpace(out) != "3" {
		t.Errorf("%s of 3 processes are left after a command's own end", out)
	}
}
