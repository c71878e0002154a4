package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"
)

func TestARelayThatIsKilledUnderLoadContinuesWithEverySandbox(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	running := killable(t, root)
	clients := ways(t, root)
	ids := make([]string, 8)
	for i := range ids {
		ids[i] = fmt.Sprintf("sandbox-%d", i)
		mustAdd(t, directClient(root), ids[i])
		guest(t, root, ids[i])
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var load sync.WaitGroup
	var exchanged atomic.Int64
	for _, c := range clients {
		for _, id := range ids {
			load.Go(func() {
				for ctx.Err() == nil {
					if use(t, c, id) == nil {
						exchanged.Add(1)
					}
				}
			})
		}
	}
	for range 5 {
		before := exchanged.Load()
		eventually(t, "the load goes on", func() error {
			if exchanged.Load() < before+50 {
				return errors.New("too little was exchanged")
			}
			return nil
		})
		kill(running)
		running = killable(t, root)
	}
	cancel()
	load.Wait()
	for name, c := range clients {
		for _, id := range ids {
			eventually(t, name+" reaches "+id, func() error { return use(t, c, id) })
		}
	}
}

// A carrier that the relay has lent outlives it. A carrier that it copies breaks.
func TestCarriersOfARelayThatIsKilled(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	running := killable(t, root)
	for name, c := range ways(t, root) {
		mustAdd(t, c, "one")
		guest(t, root, "one")
		conn, err := c.Dial(t.Context(), "one")
		if err != nil {
			t.Fatal(err)
		}
		kill(running)
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if name == "as a file" {
			if err := exchange(conn, "still here"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the carrier outlives its relay", name)
		}
		_ = conn.Close()
		running = killable(t, root)
		eventually(t, name+" dials again", func() error { return use(t, c, "one") })
	}
}

func TestACommandThatEndsIsRunAgain(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	var last net.Conn
	ended := make(chan error, 2)
	runs := 0
	c := relay.NewClient(nil, func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		runs, last = runs+1, there
		go func() { ended <- relay.Connect(context.Background(), root, there) }()
		return here, nil
	})
	for range 2 {
		mustAdd(t, c, "one")
		_ = last.Close()
		<-ended //nolint:errcheck // its connection broke, with any error
		eventually(t, "the client sees it", func() error {
			if _, err := c.List(t.Context()); err != nil || runs == 1 {
				return errors.Join(err, errors.New("it uses what has ended"))
			}
			return nil
		})
		if runs == 2 {
			break
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-ended //nolint:errcheck // as above
}

// A sandbox that dials without end does not delay others, and the relay keeps few of its connections.
func TestASandboxThatDialsWithoutEndStarvesNoOther(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	c := directClient(root)
	mustAdd(t, c, "flood", "quiet")
	guest(t, root, "quiet")
	ctx, cancel := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	var dialed, kept atomic.Int64
	for range 8 {
		flood.Go(func() {
			for ctx.Err() == nil {
				conn, err := dialSandbox(ctx, root, "flood")
				if err != nil {
					time.Sleep(time.Millisecond) //nolint:forbidigo // the pace of a flood that was refused
					continue
				}
				dialed.Add(1)
				kept.Add(1)
				flood.Go(func() {
					stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
					defer stop()
					_, _ = io.Copy(io.Discard, conn) // until the relay closes it
					_ = conn.Close()
					kept.Add(-1)
				})
			}
		})
	}
	began := time.Now()
	for time.Since(began) < 3*time.Second {
		if err := use(t, c, "quiet"); err != nil {
			t.Fatal(err)
		}
	}
	rate := float64(dialed.Load()) / time.Since(began).Seconds()
	cancel()
	flood.Wait()
	if rate > 60 {
		t.Errorf("%.0f dials a second are taken", rate)
	}
	if err := use(t, c, "quiet"); err != nil {
		t.Error(err)
	}
}

func TestNoMoreConnectionsOfASandboxAreUsedThanItsBound(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	c := directClient(root)
	mustAdd(t, c, "one", "two")
	guest(t, root, "two")
	var err error
	for i := 0; err == nil; i++ {
		if i > 16 {
			t.Fatal("17 connections of one sandbox are in use")
		}
		var parked, conn net.Conn
		if parked, err = dialSandbox(t.Context(), root, "one"); err != nil {
			t.Fatal(err)
		}
		defer parked.Close()
		if conn, err = c.Dial(t.Context(), "one"); err == nil {
			defer conn.Close()
		}
	}
	if !errors.Is(err, relay.ErrFull) {
		t.Error(err)
	}
	if err := use(t, c, "two"); err != nil {
		t.Error(err)
	}
}

// A frozen sandbox reads nothing. Its clients may still leave, and the relay forgets them.
func TestAClientOfAFrozenSandboxLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	c := directClient(root)
	mustAdd(t, c, "frozen")
	parked, err := dialSandbox(t.Context(), root, "frozen")
	if err != nil {
		t.Fatal(err)
	}
	defer parked.Close()
	conn, err := c.Dial(t.Context(), "frozen")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := conn.Write(make([]byte, 4<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the sandbox reads: %v", err)
	}
	_ = conn.Close()
	raw, err := parked.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the relay closes the sandbox's connection", func() error {
		closed := false
		err := raw.Control(func(fd uintptr) { // a read or write would show the relay that the client has left
			poll := []unix.PollFd{{Fd: int32(fd)}}
			_, err := unix.Poll(poll, 0)
			closed = err == nil && poll[0].Revents&unix.POLLHUP != 0
		})
		if err != nil || closed {
			return err
		}
		return errors.New("it is open")
	})
}

func TestASocketThatAnEarlierRunLeftIsReplaced(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	dir := filepath.Join(root, relay.SandboxDir("old"))
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{relay.ChannelSocket, relay.ChannelSocket + ".new"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start(t, root)
	guest(t, root, "old")
	if err := use(t, directClient(root), "old"); err != nil {
		t.Error(err)
	}
}
