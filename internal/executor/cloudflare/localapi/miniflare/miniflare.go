// Package miniflare runs Workers on this machine for localapi. It uses the real runtime, workerd, with real containers
// on the local Docker Engine, and keeps D1 and R2 in files. One Node.js program runs them all (worker/serve.mjs).
package miniflare

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
)

// commandLimit bounds one command: the runtime starts in seconds, on a busy machine in tens of seconds.
const commandLimit = 3 * time.Minute

// maxAnswer bounds a line of the program, in bytes.
const maxAnswer = 1 << 20

// Config configures a Runtime.
type Config struct {
	// Worker is the folder of the Worker's sources, with its packages installed.
	Worker string
	// State is the folder that Durable Objects, databases and buckets are kept in.
	State string
	// Engine is the Docker Engine's address. It must be a Unix socket: workerd supports nothing else.
	Engine string
	// Sidecar is the image that workerd runs beside each container (localaccount/sidecar).
	Sidecar string
	// Outside is the address of a server that stands in for the Internet; "" means the Internet.
	Outside string
	// Image returns the engine's name for a deployment's image. Nil means that the name is the same.
	Image func(ctx context.Context, reference string) (string, error)
	// Log receives the program's messages; nil means standard error.
	Log io.Writer
}

// Runtime is a running program.
type Runtime struct {
	image func(ctx context.Context, reference string) (string, error)
	cmd   *exec.Cmd
	stdin io.WriteCloser
	// answers closes when the program has ended.
	answers <-chan string
	// turn is held by the one command in progress. It is never released after a missed answer.
	turn chan struct{}
}

var _ localapi.Runtime = (*Runtime)(nil)

// Start runs the program. Close ends it.
func Start(cfg Config) (*Runtime, error) {
	program := filepath.Join(cfg.Worker, "serve.mjs")
	if _, err := os.Stat(filepath.Join(cfg.Worker, "node_modules", "miniflare")); err != nil {
		return nil, fmt.Errorf("run Workers: their packages are not installed: run make worker: %w", err)
	}
	if !strings.HasPrefix(cfg.Engine, "unix://") {
		return nil, fmt.Errorf("run Workers: the Docker Engine is at %q: workerd reaches one by a Unix socket only",
			cfg.Engine)
	}
	config, err := json.Marshal(map[string]string{
		"state": cfg.State, "engine": cfg.Engine, "sidecar": cfg.Sidecar, "outside": cfg.Outside,
	})
	if err != nil {
		return nil, err
	}
	r := &Runtime{image: cfg.Image, cmd: exec.Command("node", program, string(config)), turn: make(chan struct{}, 1)}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the parent: Close ends it with its containers
	r.cmd.Stderr = cfg.Log
	if cfg.Log == nil {
		r.cmd.Stderr = os.Stderr
	}
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("run Workers: %w (install Node.js 20 or later: https://nodejs.org)", err)
	}
	answers := make(chan string)
	go func() { // ends with the program
		defer close(answers)
		lines := bufio.NewScanner(stdout)
		for lines.Buffer(nil, maxAnswer); lines.Scan(); {
			answers <- lines.Text()
		}
	}()
	r.answers = answers
	return r, nil
}

// Deploy implements localapi.Runtime.
func (r *Runtime) Deploy(ctx context.Context, p localapi.Program) (string, error) {
	image, images, err := r.imagesOf(ctx, p)
	if err != nil {
		return "", err
	}
	answer, err := r.command(ctx, map[string]any{"deploy": map[string]any{
		"name": p.Name, "script": string(p.Script), "compatibility_date": p.CompatibilityDate,
		"image": image, "images": images,
		"variables": p.Variables, "classes": p.Classes, "databases": p.Databases, "buckets": p.Buckets,
	}})
	return strings.TrimSuffix(answer.URL, "/"), err
}

// named is an image that starts may choose, in Miniflare's form.
type named struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// imagesOf returns the engine's name for a program's image, "" if the program has none, and the images that starts
// choose from.
func (r *Runtime) imagesOf(ctx context.Context, p localapi.Program) (image string, images []named, err error) {
	onEngine := r.image
	if onEngine == nil {
		onEngine = func(_ context.Context, reference string) (string, error) { return reference, nil }
	}
	if p.Image != "" {
		if image, err = onEngine(ctx, p.Image); err != nil {
			return "", nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Images)) {
		found, err := onEngine(ctx, p.Images[name])
		if err != nil {
			return "", nil, err
		}
		images = append(images, named{name, found})
	}
	return image, images, nil
}

// Remove implements localapi.Runtime.
func (r *Runtime) Remove(ctx context.Context, name string) error {
	_, err := r.command(ctx, map[string]string{"remove": name})
	return err
}

// Query implements localapi.Runtime.
func (r *Runtime) Query(ctx context.Context, q localapi.Query) (json.RawMessage, error) {
	answer, err := r.command(ctx, map[string]any{"query": q})
	return answer.Rows, err
}

type answer struct {
	URL   string          `json:"url"`
	Rows  json.RawMessage `json:"rows"`
	Error string          `json:"error"`
}

// command sends a command and receives its answer. If it gives up before the answer, it was the last command.
func (r *Runtime) command(ctx context.Context, command any) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	line, err := json.Marshal(command)
	if err != nil {
		return answer{}, err
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return answer{}, fmt.Errorf("run Workers: another command is under way: %w", ctx.Err())
	}
	if _, err := r.stdin.Write(append(line, '\n')); err != nil {
		<-r.turn
		return answer{}, fmt.Errorf("run Workers: the program has ended: %w", err)
	}
	select {
	case said, alive := <-r.answers:
		<-r.turn
		return decode(said, alive)
	case <-ctx.Done():
		return answer{}, fmt.Errorf("run Workers: no answer in time: %w", ctx.Err())
	}
}

func decode(said string, alive bool) (a answer, err error) {
	switch {
	case !alive:
		return a, errors.New("run Workers: the program has ended")
	case json.Unmarshal([]byte(said), &a) != nil:
		return a, fmt.Errorf("run Workers: the program says %q, which is not an answer", said)
	case a.Error != "":
		return a, errors.New(a.Error)
	}
	return a, nil
}

// Close ends every Worker with its containers. Their data stays in Config.State.
func (r *Runtime) Close() error {
	err := r.stdin.Close()
	limit := time.AfterFunc(commandLimit, func() { _ = r.cmd.Process.Kill() }) // it may have ended
	defer limit.Stop()
	for range r.answers { // late answers have no reader
	}
	return cmp.Or(r.cmd.Wait(), err)
}
