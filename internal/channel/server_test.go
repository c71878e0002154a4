package channel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// hang lets operations begin, and ends them when their context ends.
func hang(began chan<- string, ended *atomic.Int64) channel.Handler {
	return func(ctx context.Context, r channel.Request, _ io.Reader, _ *wire.Writer) wire.Result {
		began <- r.ID
		<-ctx.Done()
		ended.Add(1)
		return wire.Result{}
	}
}

func TestGuestKeepsABoundedNumberOfSessions(t *testing.T) {
	began, ended := make(chan string, 10), atomic.Int64{}
	g := newGuest(t, hang(began, &ended), channel.ServerConfig{MaxSessions: 2})
	lost := make(chan error, 3)
	for i := range 3 {
		c := newClient(t, g.dial)
		go func() {
			_, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage, ID: fmt.Sprint(i)}, channel.Streams{})
			lost <- err
		}()
		<-began
	}
	if err := <-lost; !errors.Is(err, channel.ErrLost) {
		t.Errorf("%v, want %v", err, channel.ErrLost)
	}
}

func TestGuestKeepsABoundedNumberOfOperations(t *testing.T) {
	began, ended := make(chan string, 10), atomic.Int64{}
	c := newClient(t, newGuest(t, hang(began, &ended), channel.ServerConfig{MaxStreams: 2}).dial)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 {
		go c.Call(ctx, channel.Request{Op: channel.OpUsage}, channel.Streams{}) //nolint:errcheck // it is given up
		<-began
	}
	result, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage}, channel.Streams{})
	if err != nil || result.Problem != wire.ProblemFailed {
		t.Errorf("%+v, %v, want a problem", result, err)
	}
}

func TestClientThatClosesEndsItsOperations(t *testing.T) {
	began, ended := make(chan string, 10), atomic.Int64{}
	g := newGuest(t, hang(began, &ended), channel.ServerConfig{})
	c := channel.NewClient(channel.ClientConfig{Dial: g.dial})
	gaveUp := make(chan error)
	go func() {
		_, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage}, channel.Streams{})
		gaveUp <- err
	}()
	<-began
	go c.Close() //nolint:errcheck // it always returns nil
	if err := <-gaveUp; !errors.Is(err, channel.ErrClosed) && !errors.Is(err, channel.ErrLost) {
		t.Errorf("%v, want %v", err, channel.ErrClosed)
	}
	if _, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage},
		channel.Streams{}); !errors.Is(err, channel.ErrClosed) {
		t.Errorf("after Close: %v, want %v", err, channel.ErrClosed)
	}
	g.Close() //nolint:errcheck // it always returns nil
	if ended.Load() != 1 {
		t.Error("the guest's operation did not end")
	}
}

func TestCloseOfTheGuestEndsItsSessions(t *testing.T) {
	began, ended := make(chan string, 10), atomic.Int64{}
	g := newGuest(t, hang(began, &ended), channel.ServerConfig{})
	c := newClient(t, g.dial)
	lost := make(chan error)
	go func() {
		_, err := c.Call(t.Context(), channel.Request{Op: channel.OpUsage}, channel.Streams{})
		lost <- err
	}()
	<-began
	g.Close() //nolint:errcheck // it always returns nil
	if err := <-lost; !errors.Is(err, channel.ErrLost) {
		t.Errorf("%v, want %v", err, channel.ErrLost)
	}
	if ended.Load() != 1 {
		t.Error("the guest's operation did not end")
	}
}
