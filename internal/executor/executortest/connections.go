package executortest

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// server is a program that serves connections.
//
//go:embed testdata/server/main.go
var server string

// The ports of the server's kinds.
var served = map[string]string{
	"echo": "8001", "count": "8002", "flood": "8003", "deaf": "8004", "exit": "8005", "reset": "8006",
}

// testConnections connects to programs in sandboxes.
func testConnections(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	wantError(t, w.x.Connect(t.Context(), w.spec().Handle, 80, talk("", io.Discard)),
		sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	w.needExec(t)
	program := Compile(t, server)
	h := w.spawn(t)
	must(t, w.x.CopyTo(t.Context(), h, "/workspace", pack(t, executable("server", program))))
	for kind, port := range served {
		w.keepRunning(t, h, process("/workspace/server", port, kind))
	}
	for name, test := range map[string]func(*testing.T, *world, driver.Handle){
		"bytes go both ways":                           connectionEchoes,
		"the end of one direction leaves the other":    connectionHalfCloses,
		"a program that does not listen is waited for": connectionWaits,
		"a connection ends with its caller":            connectionGivenUp,
		"a connection ends with its program":           connectionOfTheDead,
		"a connection that is reset is broken":         connectionReset,
		"connections that stand still delay nothing":   connectionsStandStill,
	} {
		t.Run(name, func(t *testing.T) {
			cfg.skip(t, "Connections/"+name)
			t.Parallel()
			test(t, w, h)
		})
	}
	t.Run("a connection ends with its sandbox", func(t *testing.T) {
		t.Parallel()
		other := w.spawn(t)
		must(t, w.x.CopyTo(t.Context(), other, "/workspace", pack(t, executable("server", program))))
		w.keepRunning(t, other, process("/workspace/server", served["deaf"], "deaf"))
		opened, ended := w.connect(t.Context(), other, 8004, stalled(t), io.Discard)
		<-opened
		must(t, w.x.Kill(t.Context(), other))
		if err := wait(t, ended); err == nil {
			t.Error("a connection to a sandbox that is gone ended as if by its program")
		}
	})
}

// talk is a connection that sends a text and then ends its direction.
func talk(text string, to io.Writer) driver.Connection {
	return driver.Connection{Opened: func() {}, From: strings.NewReader(text), To: to}
}

// stalled returns an input that has no bytes until the test ends.
func stalled(t *testing.T) io.Reader {
	t.Helper()
	out, in := io.Pipe()
	t.Cleanup(func() { _ = in.Close() }) // never fails
	return out
}

// connect connects in the background.
func (w *world) connect(ctx context.Context, h driver.Handle, port int, from io.Reader,
	to io.Writer) (opened chan struct{}, ended chan error) {
	opened, ended = make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- w.x.Connect(ctx, h, port, driver.Connection{Opened: func() { close(opened) }, From: from, To: to})
	}()
	return opened, ended
}

func wait(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		t.Fatalf("the connection has not ended within %s", patience)
		return nil
	}
}

func connectionEchoes(t *testing.T, w *world, h driver.Handle) {
	sent := make([]byte, 3<<20+17)
	for i := range sent {
		sent[i] = byte(rand.N(256))
	}
	var several sync.WaitGroup
	for range 4 {
		several.Go(func() {
			var back bytes.Buffer
			_, ended := w.connect(t.Context(), h, 8001, bytes.NewReader(sent), &back)
			if err := wait(t, ended); err != nil || !bytes.Equal(back.Bytes(), sent) {
				t.Errorf("of %d bytes, %d came back, %v", len(sent), back.Len(), err)
			}
		})
	}
	several.Wait()
}

func connectionHalfCloses(t *testing.T, w *world, h driver.Handle) {
	var back bytes.Buffer
	must(t, w.x.Connect(t.Context(), h, 8002, talk("twelve bytes", &back)))
	if back.String() != "12 <nil>" {
		t.Errorf("the program says %q", back.String())
	}
}

func connectionWaits(t *testing.T, w *world, h driver.Handle) {
	var back bytes.Buffer
	opened, ended := w.connect(t.Context(), h, 8010, strings.NewReader("early"), &back)
	select {
	case <-opened:
		t.Error("a connection is open that no program has accepted")
	case <-time.After(300 * time.Millisecond):
	}
	w.keepRunning(t, h, process("/workspace/server", "8010", "echo"))
	if err := wait(t, ended); err != nil || back.String() != "early" {
		t.Errorf("the program says %q, %v", back.String(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	wantError(t, w.x.Connect(ctx, h, 8011, talk("", io.Discard)), sandbox.Timeout, "")
}

func connectionGivenUp(t *testing.T, w *world, h driver.Handle) {
	for _, port := range []int{8003, 8004} { // one sends all the time, one does nothing
		ctx, cancel := context.WithCancel(t.Context())
		opened, ended := w.connect(ctx, h, port, stalled(t), io.Discard)
		select {
		case <-opened:
		case err := <-ended:
			t.Fatalf("a connection to port %d is not opened: %v", port, err)
		}
		cancel()
		wantError(t, wait(t, ended), sandbox.Timeout, "")
	}
	// A caller whose writes fail has given up.
	_, ended := w.connect(t.Context(), h, 8003, stalled(t), refusing{})
	if err := wait(t, ended); !errors.Is(err, errRefused) {
		t.Errorf("the error of a caller that refuses what it gets is %v", err)
	}
}

var errRefused = errors.New("no more")

type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, errRefused }

func connectionOfTheDead(t *testing.T, w *world, h driver.Handle) {
	var said bytes.Buffer
	_, ended := w.connect(t.Context(), h, 8005, stalled(t), &said)
	if err := wait(t, ended); err != nil || said.String() != "bye" {
		t.Errorf("the program says %q, %v", said.String(), err)
	}
}

func connectionReset(t *testing.T, w *world, h driver.Handle) {
	_, ended := w.connect(t.Context(), h, 8006, stalled(t), io.Discard)
	wantError(t, wait(t, ended), sandbox.Failed, sandbox.ReasonConnectionFailed)
}

func connectionsStandStill(t *testing.T, w *world, h driver.Handle) {
	ctx, cancel := context.WithCancel(t.Context())
	var all []chan error
	for i := range sandbox.MaxConnections {
		from := stalled(t)
		if i%2 == 0 {
			from = endless{} // the program does not read it
		}
		opened, ended := w.connect(ctx, h, 8004, from, io.Discard)
		<-opened
		all = append(all, ended)
	}
	r, err := sandbox.ExecRequest{Command: []string{"echo", "beside"}}.Normalize()
	must(t, err)
	began := time.Now()
	res, err := w.x.Exec(t.Context(), h, r)
	if took := time.Since(began); err != nil || string(res.Stdout) != "beside\n" || took > answerIn {
		t.Errorf("after %s, a command says %q and %v", took, res.Stdout, err)
	}
	cancel()
	for _, ended := range all {
		wantError(t, wait(t, ended), sandbox.Timeout, "")
	}
}

// endless is an input that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
