// Package simulation_test runs clients and guests in simulated time, over carriers that break, delay and linger, with
// guests that freeze and brokers and clients that restart.
//
// All scenarios run in one bubble in a separate process. The multiplexer shares timers between sessions, and a timer of
// one bubble must not reach another.
package simulation_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

var (
	first = flag.Uint64("simulation.first", 1, "the first seed")
	seeds = flag.Uint64("simulation.seeds", 0, "the number of seeds; 0 chooses")
)

// limit is the simulated time for the work of one seed. No fault lasts that long.
const limit = 2 * time.Hour

func TestSimulation(t *testing.T) {
	n := *seeds
	if n == 0 {
		n = 60
		if testing.Short() {
			n = 10
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for _, scenario := range scenarios {
			run(t, scenario)
		}
		seen := map[string]int{}
		for seed := *first; seed < *first+n && !t.Failed(); seed++ {
			simulate(t, seed, seen)
		}
		t.Logf("%d seeds: %v", n, seen)
		for _, what := range []string{"dial", "lost", "follow", "not found", "unknown", "file repeated"} {
			if n >= 60 && !t.Failed() && seen[what] == 0 {
				t.Errorf("the simulation never came to: %s", what)
			}
		}
	})
}

// world is one simulation.
type world struct {
	*keeper
	t    *testing.T
	seed uint64

	clientMu sync.Mutex
	client   *channel.Client
}

func (w *world) errorf(format string, args ...any) {
	w.t.Errorf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
}

func simulate(t *testing.T, seed uint64, seen map[string]int) {
	synctest.Wait()
	_, before := goroutines()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	n := newNetwork(newDice(seed), seen)
	w := &world{keeper: newKeeper(ctx, n), t: t, seed: seed}
	w.client = w.newClient()

	defer time.AfterFunc(limit-time.Minute, func() {
		stacks, _ := goroutines()
		w.errorf("the work is not done after %s\n%s", limit-time.Minute, stacks)
	}).Stop()
	var work, faults sync.WaitGroup
	done, stop := context.WithCancel(ctx)
	for i := range 1 + w.n(6) {
		id := strconv.Itoa(i)
		work.Go(func() { w.runCommand(ctx, "command-"+id) })
		work.Go(func() { w.writeFile(ctx, "file-"+id) })
	}
	faults.Go(func() { w.disturb(done) })
	work.Wait()
	if ctx.Err() != nil {
		w.errorf("the work is not done after %s", limit)
	}
	stop()
	faults.Wait()
	w.client.Close() //nolint:errcheck // it always returns nil
	cancel()
	n.end()
	w.broker.Close() //nolint:errcheck // it always returns nil
	w.wg.Wait()
	synctest.Wait()
	if stacks, after := goroutines(); after > before {
		w.errorf("%d goroutines are left, %d were there before\n%s", after, before, stacks)
	}
}

// goroutines returns the stacks and the number of the bubble's goroutines.
func goroutines() (string, int) {
	b := make([]byte, 1<<20)
	stacks := string(b[:runtime.Stack(b, true)])
	return stacks, strings.Count(stacks, "synctest bubble")
}

func (w *world) newClient() *channel.Client {
	return channel.NewClient(channel.ClientConfig{Dial: w.dial})
}

func (w *world) current() *channel.Client {
	w.clientMu.Lock()
	defer w.clientMu.Unlock()
	return w.client
}

// disturb freezes the guest and restarts brokers and clients, for a limited time: a large file needs a long session.
func (w *world) disturb(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, limit/4)
	defer cancel()
	for sleep(ctx, w.upTo(20*time.Second)) {
		switch w.n(4) {
		case 0:
			w.restart()
		case 1:
			w.clientMu.Lock()
			old := w.client
			w.client = w.newClient()
			w.clientMu.Unlock()
			old.Close() //nolint:errcheck // it always returns nil
		case 2:
			c, told := w.current(), w.once(2)
			if told {
				c.Suspend()
			}
			w.freeze()
			sleep(ctx, w.upTo(time.Minute))
			w.thaw()
			if told {
				c.Resume()
			}
		default:
			sleep(ctx, w.upTo(30*time.Second))
		}
	}
}

// runCommand runs a command and follows it, however often its session is lost, and compares what arrived.
func (w *world) runCommand(ctx context.Context, id string) {
	sleep(ctx, w.upTo(10*time.Second))
	var out bytes.Buffer
	follow := false
	for ctx.Err() == nil {
		r := channel.Request{Op: channel.OpExec, ID: id}
		if follow {
			w.saw("follow")
			r = channel.Request{Op: channel.OpFollow, ID: id, Follow: &channel.Follow{StdoutOffset: int64(out.Len())}}
		}
		result, err := w.current().Call(ctx, r, channel.Streams{Stdout: &out})
		if errors.Is(err, channel.ErrLost) {
			w.saw("lost")
		}
		switch {
		case errors.Is(err, channel.ErrLost) || errors.Is(err, channel.ErrClosed):
			follow = true
		case err != nil:
			w.errorf("%s: %v", id, err)
			return
		case result.Problem == wire.ProblemConflict:
			w.saw("conflict")
			follow = true
			sleep(ctx, w.upTo(time.Second))
		case result.Problem == wire.ProblemNotFound:
			w.saw("not found")
			follow = false
			sleep(ctx, w.upTo(time.Second))
		case result.Problem != "":
			follow = true // the broker ended, but could still report it
		default:
			w.compare(id, out.Bytes(), result)
			return
		}
	}
}

func (w *world) compare(id string, got []byte, result wire.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.starts[id]; n != 1 {
		w.errorf("%s was started %d times", id, n)
	}
	if want := w.commands[id].out; !bytes.Equal(got, want) || result.StdoutBytes != int64(len(want)) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		w.errorf("%s: %d bytes of %d arrived; they differ at byte %d", id, len(got), len(want), at)
	}
}

// writeFile writes a file, and repeats the request with the same id until the result is known.
func (w *world) writeFile(ctx context.Context, id string) {
	sleep(ctx, w.upTo(30*time.Second))
	content := bytes.Repeat([]byte(id), 1+w.n(1<<w.n(17)))
	unknown := false
	for ctx.Err() == nil {
		r := channel.Request{Op: channel.OpFile, ID: id, File: &wire.FileRequest{Op: wire.FileWrite, Path: []byte(id)}}
		result, err := w.current().Call(ctx, r, channel.Streams{Stdin: bytes.NewReader(content)})
		if err != nil && !errors.Is(err, channel.ErrLost) && !errors.Is(err, channel.ErrClosed) {
			w.errorf("%s: %v", id, err)
			return
		}
		if unknown = err == nil && result.Problem == wire.ProblemUnknown; unknown {
			w.saw("unknown")
			break
		}
		if err == nil && result.Problem == "" {
			if result.Message != strconv.Itoa(len(content)) {
				w.errorf("%s: %s bytes of %d arrived", id, result.Message, len(content))
			}
			break
		}
		w.saw("file repeated")
		sleep(ctx, w.upTo(time.Second))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.applied[id]; n > 1 || n == 0 && !unknown {
		w.errorf("%s was written %d times", id, n)
	}
}
