package channel_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

func TestAPingIsASignOfLifeAndASilentGuestGivesNone(t *testing.T) {
	t.Parallel()
	server := channel.NewServer(func(context.Context, channel.Request, io.Reader, *wire.Writer) wire.Result {
		return wire.Result{}
	}, channel.ServerConfig{})
	defer server.Close()
	client := channel.NewClient(channel.ClientConfig{Dial: func(ctx context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() { _ = server.Serve(context.Background(), theirs) }() // ends with the carrier
		return ours, nil
	}})
	defer client.Close()
	if c := client.Contact(); c.Connected || !c.Heard.IsZero() {
		t.Errorf("before the first ping the contact is %+v", c)
	}
	for range 2 { // on a new carrier, then on the existing one
		began := time.Now()
		if err := client.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c := client.Contact(); !c.Connected || c.Heard.Before(began) {
			t.Errorf("after a ping at %s the contact is %+v", began, c)
		}
	}
	silent := channel.NewClient(channel.ClientConfig{Dial: func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = theirs.Close() })
		return ours, nil
	}})
	defer silent.Close()
	limited, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := silent.Ping(limited); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the ping of a silent guest: %v", err)
	}
}
