// Command gateway is the only program of the container that an environment's restricted sandboxes go
// out through:
//
//	gateway serve  -root <dir>   serves the sandboxes; the log of attempts is its standard output, and
//	                             the latest of it kept below that directory
//	gateway relay  -root <dir>   connects standard input and output to the control socket
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "gateway:", err) // there is no other place to report it
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: gateway serve | relay")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	root := flags.String("root", "/run/egress", "directory of the sockets")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "serve":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		return serve(ctx, *root)
	case "relay":
		return relay(*root)
	default:
		return fmt.Errorf("no command %q", args[0])
	}
}

// serve runs the gateway until ctx ends.
func serve(ctx context.Context, root string) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	spool, err := audit.OpenSpool(control.AttemptsDir(root), nil)
	if err != nil {
		return err
	}
	defer spool.Close() // after the log, which writes to it
	attempts := audit.New(tee{spool, os.Stdout}, nil)
	defer attempts.Close()
	dialer := &egress.Dialer{}
	p := proxy.New(proxy.Config{Dialer: dialer, Log: attempts, NewID: ids()})
	defer p.Close()
	m, err := control.Open(root, p, dialer, spool, log)
	if err != nil {
		return err
	}
	log.Info("the gateway serves", "sandboxes", len(m.Status().IDs))
	return m.Serve(ctx)
}

// tee writes to each, whatever becomes of the others.
type tee []io.Writer

func (t tee) Write(p []byte) (int, error) {
	var errs []error
	for _, w := range t {
		_, err := w.Write(p)
		errs = append(errs, err)
	}
	return len(p), errors.Join(errs...)
}

// ids issues ids of attempts: a prefix of this process, and a number.
func ids() func() string {
	prefix := strings.ToLower(rand.Text()[:10]) + "-"
	var n atomic.Int64
	return func() string { return prefix + strconv.FormatInt(n.Add(1), 10) }
}

// relay is how a client that cannot see the control socket, because the engine is another machine's,
// reaches it: as a command that the engine runs.
func relay(root string) error {
	conn, err := net.Dial("unix", filepath.Join(root, control.Dir, control.Socket))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() { // ends with the process
		_, _ = io.Copy(conn, os.Stdin) // how it ends is the client's matter
		_ = conn.Close()
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}
