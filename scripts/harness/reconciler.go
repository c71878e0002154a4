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

// Binary is what `make build` builds.
const Binary = "bin/terraform-provider-sandbox"

// Reconciler is a daemon that serves a ledger: SQLite in its state directory, unless LedgerURL names
// another. It outlives the program that started it.
type Reconciler struct {
	// URL, Token and Ledger (its id) and Service are set by Start and Connect.
	URL, Token, Ledger string
	Service            service.Service

	// TokenFile and SecretFile hold its credentials.
	TokenFile, SecretFile string
	// Database is the file of its SQLite ledger, LedgerURL names whichever ledger it serves.
	Database, LedgerURL string

	// Env are variables that its environment has beside this program's.
	Env []string

	daemon

	binary, urlFile string
}

// NewReconciler names the files of a reconciler; it starts nothing. Both paths are absolute.
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

// Start starts the daemon in a session of its own and returns once it is ready.
func (r *Reconciler) Start(ctx context.Context, priceBook string) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	serve := exec.Command(r.binary, "serve", // not bound to ctx: it lives on
		"--listen", address,
		"--ledger", r.LedgerURL,
		"--token-file", r.TokenFile,
		"--webhook-secret-file", r.SecretFile,
		"--generate-credentials",
		"--rate-limit-token", "0", "--rate-limit-address", "0", // what is measured comes from one address
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

// Connect makes the client of a daemon that runs. Errors: fs.ErrNotExist when none was started,
// sandbox.Unavailable when it does not answer.
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

// Run runs a command of the reconciler's command line and returns what it printed.
func (r *Reconciler) Run(ctx context.Context, args ...string) (string, error) {
	return Output(ctx, r.binary, args...)
}

// Stop asks the daemon to end, if it runs, and waits until it is gone.
func (r *Reconciler) Stop(ctx context.Context) error { return r.end(ctx, syscall.SIGTERM) }

// Kill ends the daemon without warning.
func (r *Reconciler) Kill(ctx context.Context) error { return r.end(ctx, syscall.SIGKILL) }

// PID returns the daemon's process id.
func (r *Reconciler) PID() (int, error) { return r.pid() }

// Memory returns how many bytes of the daemon are resident. It needs Linux.
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

// CPU returns how long the daemon has had of the processors. It needs Linux.
func (r *Reconciler) CPU() (time.Duration, error) {
	pid, err := r.pid()
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	_, figures, _ := strings.Cut(string(text), ") ") // the name before it may hold anything
	fields := strings.Fields(figures)
	const utime, stime = 14 - 3, 15 - 3 // proc(5); two of them are cut off
	if len(fields) <= stime {
		return 0, fmt.Errorf("processor time of the reconciler: %q", text)
	}
	user, err1 := strconv.ParseInt(fields[utime], 10, 64)
	system, err2 := strconv.ParseInt(fields[stime], 10, 64)
	const tick = time.Second / 100 // USER_HZ, on every architecture that there is a guest for
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// ready returns nil once the reconciler can do its work, and what keeps it from that before.
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

// freeAddress is the reconciler's default address, or another port where that one is taken.
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
