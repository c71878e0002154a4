package port_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// attempts is how often each attack is made.
const attempts = 200

// desk is a port that echoes to clients with the key.
type desk struct {
	*testing.T
	address string
	key     port.Key
	taken   atomic.Int64
}

func open(t *testing.T) *desk {
	t.Helper()
	d := &desk{T: t}
	rand.Read(d.key[:])
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- port.Serve(ctx, l, d.key, func(ctx context.Context, _ port.Purpose, conn net.Conn) {
			d.taken.Add(1)
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			_, _ = io.Copy(conn, conn) // until either side closes
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *desk) dial() net.Conn {
	d.Helper()
	conn, err := net.Dial("tcp", d.address)
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { _ = conn.Close() }) // the desk may have closed it
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		d.Fatal(err)
	}
	return conn
}

// knocks sends a preamble to the desk, and returns nil if it echoes.
func (d *desk) knocks(preamble []byte) error {
	conn := d.dial()
	if _, err := conn.Write(append(preamble, "ping"...)); err != nil {
		return err
	}
	answer := make([]byte, 4)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if string(answer) != "ping" {
		return errors.New("it answers " + string(answer))
	}
	return conn.Close()
}

func TestOnlyTheKeyOpens(t *testing.T) {
	t.Parallel()
	d := open(t)
	if err := d.knocks(port.Preamble(port.Carrier, d.key)); err != nil {
		t.Fatalf("with the key: %v", err)
	}
	before := d.taken.Load()
	for i := range attempts {
		p := port.Preamble(port.Carrier, d.key)
		switch i % 4 {
		case 0: // the key with one wrong bit
			p[9+i%32] ^= 1 << (i % 8)
		case 1: // garbage
			rand.Read(p)
		case 2: // another purpose
			p[8] = byte(3 + i%200)
		case 3: // another protocol
			copy(p, "SBXCHAN\n")
		}
		if err := d.knocks(p); err == nil {
			t.Errorf("attempt %d was let in: %q", i, p)
		}
	}
	if n := d.taken.Load() - before; n != 0 {
		t.Errorf("%d attempts came through", n)
	}
}

// TestSilentConnectionsKeepNoCallerOut opens more connections than are kept. Each is silent, or stops in the middle of
// its preamble.
func TestSilentConnectionsKeepNoCallerOut(t *testing.T) {
	t.Parallel()
	d := open(t)
	for i := range attempts {
		conn := d.dial()
		if i%2 == 0 {
			if _, err := conn.Write([]byte("SBXPORT\n")); err != nil {
				t.Fatal(err)
			}
		}
	}
	began := time.Now()
	if err := d.knocks(port.Preamble(port.Operation, d.key)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestASilentConnectionIsClosed(t *testing.T) {
	t.Parallel()
	d := open(t)
	conn := d.dial()
	began := time.Now()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

// TestAFloodKeepsNoCallerOut lets a crowd connect as fast as it can while others connect with the key.
func TestAFloodKeepsNoCallerOut(t *testing.T) {
	t.Parallel()
	d := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer cancel()
	var knocked atomic.Int64
	for range 8 {
		crowd.Go(func() {
			var dialer net.Dialer
			for ctx.Err() == nil {
				conn, err := dialer.DialContext(ctx, "tcp", d.address)
				if err != nil {
					continue
				}
				knocked.Add(1)
				_, _ = conn.Write([]byte("garbage")) // it may be closed already
				_ = conn.Close()
			}
		})
	}
	failed := 0
	for range attempts {
		if err := d.knocks(port.Preamble(port.Carrier, d.key)); err != nil {
			failed++
		}
	}
	t.Logf("%d connections of the crowd, %d of %d with the key displaced", knocked.Load(), failed, attempts)
	if failed > attempts/4 { // under load the crowd displaces more callers; they connect again
		t.Errorf("%d of %d were kept out", failed, attempts)
	}
}
