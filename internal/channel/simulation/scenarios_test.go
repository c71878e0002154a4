package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// scenarios test the protocol's times. They run in the bubble of the simulation, see the package's comment.
var scenarios = []func(*stage){
	silentGuestGetsAnotherCarrier, suspendedGuestIsLeftAlone, idleClientDoesNothing, guestDropsSessionsWithoutCarrier,
	goneSandboxFailsAtOnce, parkedCarrierWaits, helloHasALimit,
}

// stage is a guest and a client over reliable carriers.
type stage struct {
	*testing.T
	*network
	server  *channel.Server
	client  *channel.Client
	began   chan struct{} // receives each operation that began
	proceed chan struct{} // closed: operations end
	gaveUp  atomic.Int64  // operations whose context ended
	dials   atomic.Int64

	dialMu   sync.Mutex
	carriers []net.Conn
	refusal  error // of dials
}

// refuse sets the error of dials; nil allows them.
func (s *stage) refuse(err error) {
	s.dialMu.Lock()
	defer s.dialMu.Unlock()
	s.refusal = err
}

// cut closes the latest carrier.
func (s *stage) cut() {
	s.dialMu.Lock()
	defer s.dialMu.Unlock()
	s.carriers[len(s.carriers)-1].Close() //nolint:errcheck // it always returns nil
}

func run(t *testing.T, scenario func(*stage)) {
	s := &stage{
		T:       t,
		network: newNetwork(newDice(1), map[string]int{}),
		began:   make(chan struct{}, 10),
		proceed: make(chan struct{}),
	}
	s.calm = true
	s.server = channel.NewServer(s.handle, channel.ServerConfig{})
	s.client = channel.NewClient(channel.ClientConfig{Dial: s.dial})
	scenario(s)
	s.client.Close() //nolint:errcheck // it always returns nil
	s.end()
	s.server.Close() //nolint:errcheck // it always returns nil
	synctest.Wait()
}

func (s *stage) handle(ctx context.Context, _ channel.Request, _ io.Reader, _ *wire.Writer) wire.Result {
	s.began <- struct{}{}
	select {
	case <-s.proceed:
	case <-ctx.Done():
		s.gaveUp.Add(1)
	}
	return wire.Result{ExitCode: 3}
}

func (s *stage) dial(context.Context) (net.Conn, error) {
	s.dials.Add(1)
	s.dialMu.Lock()
	defer s.dialMu.Unlock()
	if s.refusal != nil {
		return nil, s.refusal
	}
	client, guest := s.connect()
	s.carriers = append(s.carriers, client)
	s.network.wg.Go(func() { s.server.Serve(context.Background(), guest) }) //nolint:errcheck // the client reports what matters
	return client, nil
}

// call begins an operation, and returns a channel with its error.
func (s *stage) call() chan error {
	ended := make(chan error, 1)
	go func() {
		result, err := s.client.Call(context.Background(), channel.Request{Op: channel.OpUsage}, channel.Streams{})
		if err == nil && result.ExitCode != 3 {
			err = fmt.Errorf("the result is %+v", result)
		}
		ended <- err
	}()
	<-s.began
	return ended
}

func silentGuestGetsAnotherCarrier(s *stage) {
	ended := s.call()
	time.Sleep(time.Hour)
	if n := s.dials.Load(); n != 1 {
		s.Errorf("%d dials while the guest answered heartbeats, want 1", n)
	}
	time.Sleep(3 * time.Second) // since its last sign of life
	s.freeze()
	time.Sleep(14 * time.Second) // 17 s of silence: more than 15 s, and before the heartbeat at 20 s
	if n := s.dials.Load(); n < 2 {
		s.Error("a silent guest got no other carrier")
	}
	s.thaw()
	close(s.proceed)
	if err := <-ended; err != nil {
		s.Error(err)
	}
}

func suspendedGuestIsLeftAlone(s *stage) {
	ended := s.call()
	s.client.Suspend()
	s.freeze()
	time.Sleep(30 * 24 * time.Hour)
	s.thaw()
	s.client.Resume()
	time.Sleep(time.Minute)
	if n := s.dials.Load(); n != 1 || s.gaveUp.Load() != 0 {
		s.Errorf("%d dials and %d operations given up, want the first carrier to do", n, s.gaveUp.Load())
	}
	close(s.proceed)
	if err := <-ended; err != nil {
		s.Error(err)
	}
}

func idleClientDoesNothing(s *stage) {
	close(s.proceed)
	if err := <-s.call(); err != nil {
		s.Error(err)
	}
	s.cut()
	time.Sleep(5 * time.Minute)
	if n := s.dials.Load(); n != 1 || !s.client.Idle() {
		s.Errorf("an idle client dialed %d times", n)
	}
	for range 2 { // the session is resumed, then replaced: the caller notices neither
		if err := <-s.call(); err != nil {
			s.Error(err)
		}
		s.cut()
		time.Sleep(time.Hour)
	}
}

func guestDropsSessionsWithoutCarrier(s *stage) {
	ended := s.call()
	s.refuse(errBroken)
	s.cut()
	time.Sleep(9 * time.Minute)
	if s.gaveUp.Load() != 0 {
		s.Error("the session ended within 9 minutes")
	}
	time.Sleep(2 * time.Minute)
	if s.gaveUp.Load() != 1 {
		s.Error("the session is there after 11 minutes")
	}
	s.refuse(nil)
	if err := <-ended; !errors.Is(err, channel.ErrLost) {
		s.Errorf("%v, want %v", err, channel.ErrLost)
	}
}

func goneSandboxFailsAtOnce(s *stage) {
	s.refuse(fmt.Errorf("container 1234: %w", channel.ErrGone))
	for range 3 {
		began := time.Now()
		_, err := s.client.Call(context.Background(), channel.Request{Op: channel.OpUsage}, channel.Streams{})
		if !errors.Is(err, channel.ErrGone) || time.Since(began) > time.Millisecond {
			s.Errorf("%v after %s, want %v", err, time.Since(began), channel.ErrGone)
		}
	}
}

func parkedCarrierWaits(s *stage) {
	conn, err := s.dial(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	time.Sleep(24 * time.Hour)
	c := channel.NewClient(channel.ClientConfig{Dial: func(context.Context) (net.Conn, error) { return conn, nil }})
	close(s.proceed)
	if _, err := c.Call(context.Background(), channel.Request{Op: channel.OpUsage}, channel.Streams{}); err != nil {
		s.Error(err)
	}
	<-s.began
	c.Close() //nolint:errcheck // it always returns nil
}

func helloHasALimit(s *stage) {
	conn, err := s.dial(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	conn.Write([]byte("SBX")) //nolint:errcheck // a read reports it
	began := time.Now()
	_, err = conn.Read(make([]byte, 1))
	if took := time.Since(began); err == nil || took < 9*time.Second || took > 11*time.Second {
		s.Errorf("%v after %s, want the end of the carrier after 10s", err, took)
	}
}
