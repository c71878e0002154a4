package relay

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// Run runs the program: `serve` is the relay, `connect` connects to it through standard input and output.
func Run(args []string) error {
	if len(args) == 0 {
		return errors.New("usage: relay serve | connect [-root <dir>]")
	}
	flags := flag.NewFlagSet("relay "+args[0], flag.ContinueOnError)
	root := flags.String("root", Root, "directory of the relay's data")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch args[0] {
	case "serve":
		log := slog.New(slog.NewTextHandler(os.Stderr, nil))
		return Serve(ctx, Config{Root: *root, Owner: guest.KeeperID, Log: log})
	case "connect":
		return Connect(ctx, *root, standard{})
	default:
		return fmt.Errorf("relay: unknown command %q", args[0])
	}
}

// standard is standard input and output as one stream.
type standard struct{}

func (standard) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (standard) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (standard) Close() error                { return errors.Join(os.Stdin.Close(), os.Stdout.Close()) }

// Connect forwards connections to the control socket, as yamux streams over one connection, until that connection or
// ctx ends. root is the relay's root.
func Connect(ctx context.Context, root string, over io.ReadWriteCloser) error {
	session, err := yamux.Server(over, muxConfig())
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = session.Close() }) // AcceptStream then returns an error
	defer stop()
	var streams sync.WaitGroup
	defer streams.Wait()
	defer session.Close()
	for {
		s, err := session.AcceptStream()
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, yamux.ErrSessionShutdown) {
				return nil
			}
			return err
		}
		streams.Go(func() { connectOne(ctx, root, s) })
	}
}

// connectOne forwards one connection. If the control socket refuses it, the stream ends without an answer.
func connectOne(ctx context.Context, root string, s *yamux.Stream) {
	client := &stream{s}
	defer client.Close()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(root, ControlDir, ControlSocket))
	if err != nil {
		return
	}
	defer conn.Close()
	control, ok := conn.(*net.UnixConn)
	if !ok {
		return
	}
	var forth sync.WaitGroup
	forth.Go(func() {
		_, err := io.Copy(control, client)
		if err == nil {
			err = control.CloseWrite()
		}
		wait := lingering // the answer may take this long, like yamux at the other end
		if err != nil {
			wait = 0
		}
		_ = control.SetReadDeadline(time.Now().Add(wait)) // a closed connection needs no deadline
	})
	_, err = io.Copy(client, control)
	if err == nil {
		err = client.CloseWrite()
	}
	if err != nil || hungUp(control) {
		_ = client.Close() // ends the sending half too
		_ = control.Close()
	}
	forth.Wait()
}
