package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
)

// startBare starts a second process of this program. It checks signatures and does nothing else or, with rowsFile,
// stores each message as one row. It returns the URL of the process; stop ends it.
func startBare(ctx context.Context, secretFile, rowsFile string) (url string, stop func() error, err error) {
	return startSelf(ctx, "-bare", secretFile, "-rows", rowsFile)
}

// startSelf starts a second process of this program, which prints its URL. stop ends the process.
func startSelf(ctx context.Context, args ...string) (url string, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	command := exec.CommandContext(ctx, self, args...)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := command.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error {
		err := command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait() // the signal ends it, which Wait reports as an error
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("%v did not say where it listens: %w", args[0], err), stop())
	}
	return strings.TrimSpace(line), stop, nil
}

// serveBare answers signed messages until the process ends, and prints its URL. With rowsFile, it stores each message
// first.
func serveBare(secretFile, rowsFile string) error {
	secrets, err := access.LoadSecrets(secretFile)
	if err != nil {
		return err
	}
	store := func(string, []byte) error { return nil }
	if rowsFile != "" {
		s, err := openRows(context.Background(), rowsFile)
		if err != nil {
			return err
		}
		go s.run(context.Background())
		store = s.store
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	server := http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, webhook.MaxBody))
			if err != nil {
				http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
				return
			}
			id, _, err := secrets.Verify(r.Header, body, time.Now())
			if err != nil {
				http.Error(w, err.Error(), http.StatusUnauthorized)
				return
			}
			if err := store(id, body); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusAccepted)
			_, _ = fmt.Fprintf(w, `{"id":%q}`, id) // a sender that has disconnected needs no reply
		}),
	}
	return server.Serve(listener)
}
