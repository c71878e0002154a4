package executortest

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testSecrets(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	w.needExec(t)
	for name, test := range map[string]func(*testing.T, *world){
		"are files that only the sandbox's user reads":    secretsAreFiles,
		"replace those that were there before":            secretsReplaceOlder,
		"stand in no variable and no argument":            secretsShowNowhere,
		"come past what sandboxed code put in their way":  secretsComeThrough,
		"survive a pause, and are put again after a stop": secretsInSleep,
		"are a conflict while the sandbox sleeps":         secretsWhileAsleep,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t, w) })
	}
}

const secretValue = "hunter2-of-the-contract"

func (w *world) putSecrets(t *testing.T, h driver.Handle, secrets map[string]sandbox.Secret) {
	t.Helper()
	must(t, w.x.PutSecrets(t.Context(), h, secrets))
}

func (w *world) wantOutput(t *testing.T, h driver.Handle, script, want string) {
	t.Helper()
	if res := w.sh(t, h, script); res.stdout() != want {
		t.Errorf("%s: got %q, want %q (%s)", script, res.stdout(), want, res.Stderr)
	}
}

func secretsAreFiles(t *testing.T, w *world) {
	h := w.spawn(t, allowRoot)
	w.putSecrets(t, h, map[string]sandbox.Secret{"token": secretValue, "ca.pem": "two\nlines"})
	user := w.user(t, h)
	w.wantOutput(t, h, "cd /run/secrets && stat -c '%n %a %u:%g' *; cat token; echo; cat ca.pem",
		"ca.pem 400 "+user+"\ntoken 400 "+user+"\n"+secretValue+"\ntwo\nlines")
	if !w.x.Capabilities().Confined {
		return
	}
	w.wantOutput(t, h, "stat -f -c %T /run/secrets; stat -c %a /run/secrets", "tmpfs\n700\n")
	for _, user := range []string{"1001:1000", "0:0"} {
		res := w.exec(t, h,
			sandbox.ExecRequest{Command: []string{"sh", "-c", "cat /run/secrets/token 2>/dev/null || echo refused"}, User: user})
		if res.stdout() != "refused\n" {
			t.Errorf("user %s reads %q", user, res.stdout())
		}
	}
}

func secretsReplaceOlder(t *testing.T, w *world) {
	h := w.spawn(t)
	w.putSecrets(t, h, map[string]sandbox.Secret{"a": "1", "b": "2"})
	w.putSecrets(t, h, map[string]sandbox.Secret{"b": "two", "c": "3"})
	w.putSecrets(t, h, map[string]sandbox.Secret{"b": "two", "c": "3"})
	w.wantOutput(t, h, "cd /run/secrets && ls -A && cat *", "b\nc\ntwo3")
	w.putSecrets(t, h, nil)
	w.wantOutput(t, h, "ls -A /run/secrets", "")
}

func secretsShowNowhere(t *testing.T, w *world) {
	h := w.spawn(t)
	w.sh(t, h,
		"sleep 600 & while :; do cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ; done >/workspace/seen 2>/dev/null & true")
	w.putSecrets(t, h, map[string]sandbox.Secret{"token": secretValue})
	w.wantOutput(t, h, "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null >>/workspace/seen; "+
		"env >>/workspace/seen; grep -c '[h]unter2-of-the' /workspace/seen; true", "0\n")
}

// secretsComeThrough: code of the same user may put anything into the directory.
func secretsComeThrough(t *testing.T, w *world) {
	if !w.x.Capabilities().Confined {
		t.Skip("the directory of secrets has as much room as the disk")
	}
	h := w.spawn(t)
	w.sh(t, h, "cd /run/secrets && ln -s /workspace/stolen token && mkdir -p ca.pem/deep .unfinished && echo mine > "+
		"/workspace/stolen && dd if=/dev/zero of=junk bs=1M 2>/dev/null; true")
	w.putSecrets(t, h, map[string]sandbox.Secret{"token": secretValue, "ca.pem": "pem"})
	w.wantOutput(t, h, "cd /run/secrets && ls -A && cat * && cat /workspace/stolen",
		"ca.pem\ntoken\npem"+secretValue+"mine\n")
	res := w.sh(t, h, "rmdir /run/secrets 2>/dev/null || mv /run/secrets /run/other 2>/dev/null || echo refused")
	if res.stdout() != "refused\n" {
		t.Errorf("the directory can be replaced: %q", res.stdout())
	}
}

func secretsInSleep(t *testing.T, w *world) {
	h := w.spawn(t)
	w.putSecrets(t, h, map[string]sandbox.Secret{"token": secretValue})
	if w.x.Capabilities().Pause {
		must(t, w.x.Sleep(t.Context(), h, sandbox.SleepPause))
		wake(t, w.x, h)
		w.wantOutput(t, h, "cat /run/secrets/token", secretValue)
	}
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	wake(t, w.x, h)
	w.wantOutput(t, h, "ls -A /run/secrets", "")
	w.putSecrets(t, h, map[string]sandbox.Secret{"token": secretValue})
	w.wantOutput(t, h, "cat /run/secrets/token", secretValue)
}

func secretsWhileAsleep(t *testing.T, w *world) {
	h := w.spawn(t)
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	wantError(t, w.x.PutSecrets(t.Context(), h, map[string]sandbox.Secret{"token": secretValue}), sandbox.Conflict,
		sandbox.ReasonInvalidState)
}
