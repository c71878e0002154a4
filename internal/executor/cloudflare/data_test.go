package cloudflare_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// testData checks that /data outlives a container. Nothing else does.
func testData(w *world) {
	w.each(map[string]func(*world){
		"it survives a sleep and a crash":            dataKept,
		"programs end before it is saved for a stop": dataAtStop,
		"what a failed command left is saved, too":   dataOfFailed,
		"what a failed copy left is saved, too":      dataOfCopy,
		"it is saved when it has changed":            dataUnchanged,
		"large and odd files come back":              dataLarge,
	})
}

func dataKept(w *world) {
	h := w.spawn(cloudflare.Limits{})
	w.sh(h, "mkdir /data/memory && echo day one > /data/memory/day && chmod 640 /data/memory/day")
	const look = "cat /data/memory/day; stat -c '%a %u:%g' /data/memory/day"
	for what, stop := range map[string]func(){
		"sleep": func() { w.must(w.worker.Sleep(w.Context(), h)) },
		"crash": func() { w.crash(h); w.awaitStopped(h) },
	} {
		stop()
		w.must(w.worker.Wake(w.Context(), h))
		if got := w.sh(h, look); got != "day one\n640 1000:1000\n" {
			w.Errorf("after a %s: %q", what, got)
		}
	}
}

func dataAtStop(w *world) {
	h := w.spawn(cloudflare.Limits{})
	w.sh(h, `cat > /workspace/p <<'END'
		trap 'echo last words > /data/last; exit' TERM
		echo up > /workspace/up
		while :; do sleep 0.1; done
END
		setsid sh /workspace/p >/dev/null 2>&1 & until [ -e /workspace/up ]; do sleep 0.1; done`)
	w.must(w.worker.Sleep(w.Context(), h))
	w.must(w.worker.Wake(w.Context(), h))
	if got := w.sh(h, "cat /data/last"); got != "last words\n" {
		w.Errorf("after a sleep: %q", got)
	}
}

func dataOfFailed(w *world) {
	h := w.spawn(cloudflare.Limits{})
	w.sh(h, "echo half > /data/half; exit 1")
	if at := w.inspect(h).SavedAt; at.IsZero() {
		w.Error("it was not saved after a command that failed")
	}
	w.crash(h)
	w.awaitStopped(h)
	w.must(w.worker.Wake(w.Context(), h))
	if got := w.sh(h, "cat /data/half"); got != "half\n" {
		w.Errorf("after a crash: %q", got)
	}
}

func dataUnchanged(w *world) {
	h := w.spawn(cloudflare.Limits{})
	w.sh(h, "ls /data")
	if at := w.inspect(h).SavedAt; !at.IsZero() {
		w.Errorf("nothing was saved at %s", at)
	}
	w.sh(h, "echo x > /data/x")
	first := w.inspect(h).SavedAt
	w.sh(h, "cat /data/x")
	if again := w.inspect(h).SavedAt; again != first || first.IsZero() {
		w.Errorf("saved at %s, and again at %s without a change", first, again)
	}
	w.sh(h, "echo y > /data/x")
	if again := w.inspect(h).SavedAt; !again.After(first) {
		w.Errorf("saved at %s, and not again after a change", first)
	}
}

// dataOfCopy: a copy that breaks off leaves the files before the break.
func dataOfCopy(w *world) {
	h := w.spawn(cloudflare.Limits{})
	host := strings.TrimSpace(w.sh(h, "hostname")) // a command after the copy would save its files
	var archive bytes.Buffer
	entries := tar.NewWriter(&archive)
	w.must(entries.WriteHeader(&tar.Header{Name: "half", Mode: 0o644, Size: 5}))
	_, err := entries.Write([]byte("half\n"))
	w.must(err)
	w.must(entries.Flush())
	archive.WriteString(strings.Repeat("this is no entry", 64))
	if err := w.worker.CopyTo(w.Context(), h, "/data", &archive); err == nil {
		w.Error("a copy of a broken archive succeeds")
	}
	cloudflaretest.Crash(w, host)
	w.awaitStopped(h)
	w.must(w.worker.Wake(w.Context(), h))
	if got := w.sh(h, "cat /data/half"); got != "half\n" {
		w.Errorf("after a crash: %q", got)
	}
}

// TestWhatDetachedCommandsLeftIsSaved: only the alarm tells the Durable Object that they have ended.
func TestWhatDetachedCommandsLeftIsSaved(t *testing.T) {
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{Check: 3 * time.Second})
	w := &world{t, server, server.Worker()}
	const script = "echo begun; sleep 1; echo done > /data/left"
	w.each(map[string]func(*world){
		"by one that ends":             func(w *world) { w.leavesData(script, time.Hour) },
		"by one that its timeout ends": func(w *world) { w.leavesData(script+"; sleep 7008", 12*time.Second) },
	})
}

// leavesData runs a detached command whose caller dies, and crashes the container after /data is saved.
func (w *world) leavesData(script string, timeout time.Duration) {
	h := w.spawn(cloudflare.Limits{})
	host := strings.TrimSpace(w.sh(h, "hostname"))
	w.dieAtOutput(h, sandbox.ExecRequest{
		ID:      sandbox.RandomIDs(sandbox.SandboxIDLength),
		Command: []string{"sh", "-c", script},
		Timeout: sandbox.Duration(timeout),
		Detach:  true,
	})
	testwait.Until(w, 30*time.Second, "/data is saved, within ten alarms", func() bool { return !w.inspect(h).SavedAt.IsZero() })
	cloudflaretest.Crash(w, host)
	w.awaitStopped(h)
	w.must(w.worker.Wake(w.Context(), h))
	if got := w.sh(h, "cat /data/left"); got != "done\n" {
		w.Errorf("after a crash: %q", got)
	}
}

// dataLarge has more data than one part of an object, and files that only user 0 can read.
func dataLarge(w *world) {
	h := w.spawn(cloudflare.Limits{})
	w.sh(h, `cd /data; yes 0123456789abcde | head -c 20000000 > large; echo x > locked; chmod 0 locked; ln large same; ln -s large link
		ln -s /data/large absolute; ln -s /etc/passwd outside; mkfifo pipe; mkdir none; chmod 500 none`)
	w.wantExport(h, "./ ./absolute ./large ./link ./locked ./none/ ./same")
	w.must(w.worker.Sleep(w.Context(), h))
	w.must(w.worker.Wake(w.Context(), h))
	const look = `cd /data; wc -c < large; stat -c '%n %a %h' large locked none same; readlink link; readlink absolute; ls`
	got, want := w.sh(h, look), "20000000\nlarge 644 2\nlocked 0 1\nnone 500 2\nsame 644 2\nlarge\nlarge\n"+
		"absolute large link locked none same"
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		w.Errorf("after a sleep there is %q, want %q", got, want)
	}
	_, err := w.worker.Export(w.Context(), w.spec().Handle)
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
}

// wantExport checks the names in an export of /data.
func (w *world) wantExport(h driver.Handle, want string) {
	w.Helper()
	r, err := w.worker.Export(w.Context(), h)
	w.must(err)
	var names []string
	for entries := tar.NewReader(r); ; {
		e, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		w.must(err)
		names = append(names, e.Name)
	}
	w.must(r.Close())
	if got := strings.Join(names, " "); got != want {
		w.Errorf("the export has %s, want %s", got, want)
	}
}

// TestDataBeyondTheLimitOfCommandsLive has too much in /data to save it after a command. A sleep saves it.
func TestDataBeyondTheLimitOfCommandsLive(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("moves some gigabytes: set SANDBOX_TEST_LONG=1")
	}
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{})
	w := &world{t, server, server.Worker()}
	h := w.spawn(cloudflare.Limits{})
	w.sh(h, "echo small > /data/small")
	small := w.inspect(h).SavedAt
	sum := w.sh(h, "head -c 1200000000 /dev/urandom > /data/large; cksum < /data/large")
	if at := w.inspect(h).SavedAt; at != small {
		t.Errorf("a command that left 1.2 GB was held up by a save at %s", at)
	}
	r, err := w.worker.Export(w.Context(), h)
	w.must(err)
	exported, err := io.Copy(io.Discard, r)
	w.must(err)
	w.must(r.Close())
	if exported < 1_200_000_000 {
		t.Errorf("%d bytes were exported", exported)
	}
	w.sh(h, "echo more >> /data/small")
	for range 2 {
		began := time.Now()
		w.must(w.worker.Sleep(w.Context(), h))
		asleep := time.Now()
		w.must(w.worker.Wake(w.Context(), h))
		t.Logf("the sleep took %s, the wake %s", asleep.Sub(began), time.Since(asleep))
		if got := w.sh(h, "cat /data/small; cksum < /data/large"); got != "small\nmore\n"+sum {
			t.Errorf("after a sleep there is %q, want %q", got, sum)
		}
	}
}
