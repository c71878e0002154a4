// Package servetest runs reconcilers for tests: in the test's own process, or as a command in another process.
package servetest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/daemon"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// commandVar holds the arguments of the command that a test binary runs instead of its tests.
const commandVar = "SANDBOX_TEST_COMMAND"

// RunCommand runs the command of Install.Command and exits. Without a command it returns. TestMain must call it first.
func RunCommand() {
	args := os.Getenv(commandVar)
	if args == "" {
		return
	}
	command := cli.New(cli.Config{Version: "test", Local: daemon.Commands(cli.Config{Version: "test"})})
	os.Exit(cli.Run(context.Background(), command, strings.Split(args, " ")))
}

// Install is a directory with the files that serve reads.
type Install struct {
	*testing.T
	Dir string
}

// New creates the directory, a token and a webhook secret.
func New(t *testing.T) *Install {
	t.Helper()
	i := &Install{t, t.TempDir()}
	i.Write("secrets", webhook.NewSecret()+"\n")
	i.Write("tokens", "test "+access.NewToken()+"\n")
	return i
}

// Write writes a file in the directory, and returns its path.
func (i *Install) Write(name, text string) string {
	i.Helper()
	file := filepath.Join(i.Dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		i.Fatal(err)
	}
	return file
}

// Command returns a process that runs a command of the reconciler, such as serve, on the install's files. No argument
// may contain a space.
func (i *Install) Command(ctx context.Context, args ...string) *exec.Cmd {
	args = append(args, "--token-file", i.Dir+"/tokens", "--webhook-secret-file", i.Dir+"/secrets")
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s", commandVar, strings.Join(args, " ")))
	return cmd
}

// Served is a reconciler in the process of the test.
type Served struct {
	*Install
	Config  reconciler.Config
	Address string
	reloads chan reconciler.Config
}

// Serve serves until the test ends.
func (i *Install) Serve(change func(*reconciler.Config)) *Served {
	i.Helper()
	s := &Served{Install: i, reloads: make(chan reconciler.Config)}
	s.Config = reconciler.Config{
		Listen:     "127.0.0.1:0",
		LedgerURL:  "sqlite://" + i.Dir + "/ledger.db",
		TokenFile:  i.Dir + "/tokens",
		SecretFile: i.Dir + "/secrets",
		Version:    "test",
		Logger:     slog.New(slog.NewTextHandler(i.Output(), nil)),
		Reloads:    s.reloads,
	}
	change(&s.Config)
	ctx, stop := context.WithCancel(i.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- reconciler.Serve(ctx, s.Config, func(s reconciler.Started) { ready <- s.Address }) }()
	i.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			i.Error(err)
		}
	})
	select {
	case s.Address = <-ready:
	case err := <-done:
		done <- nil
		i.Fatal(err)
	}
	return s
}

// Reload reloads the settings, and returns when that is complete: Serve receives the second message only after it has
// handled the first.
func (s *Served) Reload() {
	s.reloads <- s.Config
	s.reloads <- s.Config
}

// Deliver sends a condition that a webhook secret signs.
func (s *Served) Deliver(secret, id string) error {
	s.Helper()
	key, err := webhook.ParseSecret(secret)
	if err != nil {
		s.Fatal(err)
	}
	c, err := client.New(client.Config{
		URL:      "http://" + s.Address,
		Attempts: 1,
		Sign: func(h http.Header, id string, body []byte) error {
			return key.Sign(h, id, time.Now(), body)
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.Deliver(s.Context(), sandbox.Delivery{ID: id, Condition: sandbox.Condition{
		Type: "game.finished", Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: "nowhere"}}})
	return err
}
