package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
)

// Binary is the program that `make build` builds.
const Binary = "bin/terraform-provider-sandbox"

// Reconciler is a daemon that serves a ledger: SQLite in its state directory, unless LedgerURL names another one. It
// outlives the program that started it.
type Reconciler struct {
	// Start and Connect set URL, Token, Ledger (its id) and Service.
	URL, Token, Ledger string
	Service            service.Service

	// TokenFile and SecretFile hold its credentials.
	TokenFile, SecretFile string
	// Database is the file of its SQLite ledger. LedgerURL names the ledger that it serves.
	Database, LedgerURL string

	// Env are variables in addition to this program's environment.
	Env []string

	daemon

	binary, urlFile string
}

// NewReconciler returns a reconciler that is not started. Both paths are absolute.
func NewReconciler(root, state string) *Reconciler {
	binary := filepath.Join(root, Binary)
	database := filepath.Join(state, "ledger.db")
	return &Reconciler{
		daemon:     newDaemon(state, "reconciler", binary+" serve"),
		TokenFile:  filepath.Join(state, "token"),
		SecretFile: filepath.Join(state, "webhook-secret"),
		Database:   database,
		LedgerURL:  "sqlite://" + database,
		binary:     binary,
		urlFile:    filepath.Join(state, "reconciler.url"),
	}
}

// Start starts the daemon in its own session and returns once it is ready.
func (r *Reconciler) Start(ctx context.Context, priceBook string) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	serve := exec.Command(r.binary, "serve", // it outlives ctx
		"--listen", address,
		"--ledger", r.LedgerURL,
		"--token-file", r.TokenFile,
		"--webhook-secret-file", r.SecretFile,
		"--generate-credentials",
		"--rate-limit-token", "0", "--rate-limit-address", "0", // all load comes from one address
		"--docker-price-book", priceBook)
	serve.Env = append(os.Environ(), r.Env...)
	if err := os.WriteFile(r.urlFile, []byte("http://"+address), 0o600); err != nil {
		return err
	}
	if err := r.start(ctx, serve, func(ctx context.Context) error { return ready(ctx, "http://"+address) }); err != nil {
		return err
	}
	return r.Connect(ctx)
}

// Connect connects to a running daemon. Errors: fs.ErrNotExist if none was started, sandbox.Unavailable if it does not
// answer.
func (r *Reconciler) Connect(ctx context.Context) error {
	url, err := os.ReadFile(r.urlFile)
	if err != nil {
		return err
	}
	r.URL = string(url)
	if r.Token, err = access.ReadToken(r.TokenFile); err != nil {
		return err
	}
	if r.Service, err = client.New(client.Config{URL: r.URL, Token: r.Token}); err != nil {
		return err
	}
	info, err := r.Service.Ledger(ctx)
	r.Ledger = info.ID
	return err
}

// Run runs a command of the reconciler's command line and returns its output.
func (r *Reconciler) Run(ctx context.Context, args ...string) (string, error) {
	return Output(ctx, r.binary, args...)
}

// Stop asks the daemon to exit, if it runs, and waits for that.
func (r *Reconciler) Stop(ctx context.Context) error { return r.end(ctx, syscall.SIGTERM) }

// Kill ends the daemon without warning.
func (r *Reconciler) Kill(ctx context.Context) error { return r.end(ctx, syscall.SIGKILL) }

// PID returns the daemon's process id.
func (r *Reconciler) PID() (int, error) { return r.pid() }

// Memory returns the resident memory of the daemon in bytes. It needs Linux.
func (r *Reconciler) Memory() (int64, error) {
	pid, err := r.pid()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0, err
	}
	var size, resident int64 // pages
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, fmt.Errorf("memory of the reconciler: %w", err)
	}
	return resident * int64(os.Getpagesize()), nil
}

// CPU returns the CPU time of the daemon. It needs Linux.
func (r *Reconciler) CPU() (time.Duration, error) {
	pid, err := r.pid()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	_, figures, _ := strings.Cut(string(text), ") ") // the name before it may contain anything
	fields := strings.Fields(figures)
	const utime, stime = 14 - 3, 15 - 3 // proc(5), without the two fields that are cut off
	if len(fields) <= stime {
		return 0, fmt.Errorf("processor time of the reconciler: %q", text)
	}
	user, err1 := strconv.ParseInt(fields[utime], 10, 64)
	system, err2 := strconv.ParseInt(fields[stime], 10, 64)
	const tick = time.Second / 100 // USER_HZ, on every architecture that guests support
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// ready returns nil once the reconciler can work, and before that the reason why not.
func ready(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // nothing is read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s/readyz: %s", url, response.Status)
	}
	return nil
}

// freeAddress returns the reconciler's default address, or another port if that one is taken.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:8787")
	if errors.Is(err, syscall.EADDRINUSE) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
