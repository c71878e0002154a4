// Command gateway is the only program in the container that forwards the traffic of an environment's
// restricted sandboxes:
//
//	gateway serve  -root <dir>   serves the sandboxes; logs attempts to its standard output, and keeps the
//	                             latest attempts and the journal of LLM calls below that directory
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
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	_ "golang.org/x/crypto/x509roots/fallback" // public authorities: the gateway's image has no others

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "gateway:", err) // there is nowhere else to report it
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
		return fmt.Errorf("unknown command %q", args[0])
	}
}

// memoryLimit is the soft limit of the Go runtime. The container has 256 MiB.
const memoryLimit = 200 << 20

// serve runs the gateway until ctx ends.
func serve(ctx context.Context, root string) error {
	if err := harden(); err != nil {
		return fmt.Errorf("keep the memory of this process private: %w", err)
	}
	debug.SetMemoryLimit(memoryLimit)
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	spool, err := audit.OpenSpool(control.AttemptsDir(root), nil)
	if err != nil {
		return err
	}
	defer spool.Close() // close it after the log, which writes to it
	attempts := audit.New(tee{spool, os.Stdout}, nil)
	defer attempts.Close()
	dialer := &egress.Dialer{}
	broker, err := llm.Open(llm.Options{Dir: control.CallsDir(root), Dialer: dialer, NewID: ids()})
	if err != nil {
		return err
	}
	defer func() {
		if err := broker.Close(); err != nil {
			log.Error("the LLM journal was not closed properly", "error", err)
		}
	}()
	credentials, err := credential.Open(control.AuthorityDir(root))
	if err != nil {
		return err
	}
	p := proxy.New(
		proxy.Config{Dialer: dialer, Log: attempts, NewID: ids(), LLM: broker, Credentials: credentials})
	defer p.Close()
	m, err := control.Open(root, p, dialer, spool, broker, credentials, log)
	if err != nil {
		return err
	}
	log.Info("the gateway is running", "sandboxes", len(m.Status().IDs))
	return m.Serve(ctx)
}

// tee writes to all writers, even if some fail.
type tee []io.Writer

func (t tee) Write(p []byte) (int, error) {
	var errs []error
	for _, w := range t {
		_, err := w.Write(p)
		errs = append(errs, err)
	}
	return len(p), errors.Join(errs...)
}

// ids returns a source of ids for attempts: a prefix for this process and a number.
func ids() func() string {
	prefix := strings.ToLower(rand.Text()[:10]) + "-"
	var n atomic.Int64
	return func() string { return prefix + strconv.FormatInt(n.Add(1), 10) }
}

// relay connects a client that cannot see the control socket, because the engine is on another machine. The engine runs
// it as a command.
func relay(root string) error {
	conn, err := net.Dial("unix", filepath.Join(root, control.Dir, control.Socket))
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() { // it ends with the process
		_, _ = io.Copy(conn, os.Stdin) // the client sees the end
		_ = conn.Close()
	}()
	_, err = io.Copy(os.Stdout, conn)
	return err
}
