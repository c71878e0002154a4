package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

const (
	commandClients = 16
	commandFlood   = 5 * time.Second
	echoed         = 64 << 10  // bytes in and out of one command
	unpacked       = 100 << 20 // bytes of one file
	unpackRounds   = 5
	echoPath       = "/workspace/echo"
)

// Targets of commands.
const (
	commandRate     = 300 // 1/s
	commandCPU      = 3   // ms of the whole machine each
	commandOwnCPU   = 1.5 // ms of the reconciler each
	echoTarget      = 5   // ms
	unpackingTarget = 1.2 // of the engine's own time
)

// workplace is a sandbox with a program that echoes its input, and a client of the engine that runs it.
type workplace struct {
	s         *stage
	lease     sandbox.LeaseRef
	container string
	api       *dockerapi.Client
}

func (s *stage) workplace(ctx context.Context, environment, agent string) (_ *workplace, err error) {
	got, err := s.reconciler.Service.Acquire(ctx, sandbox.Acquire{AgentDID: agent, EnvironmentID: environment})
	if err != nil {
		return nil, err
	}
	w := &workplace{
		s:         s,
		lease:     sandbox.LeaseRef{ID: got.Lease.ID},
		container: "sandbox-" + s.reconciler.Ledger + "-" + got.Lease.SandboxID,
	}
	if w.api, err = docker.NewClient(docker.Config{}); err != nil {
		return nil, errors.Join(err, w.close(ctx))
	}
	if err := w.install(ctx, "echo"); err != nil {
		return nil, errors.Join(err, w.close(ctx))
	}
	return w, nil
}

func (w *workplace) close(ctx context.Context) error {
	_, err := w.s.reconciler.Service.Release(ctx, w.lease)
	if w.api != nil {
		err = errors.Join(err, w.api.Close())
	}
	return err
}

func (w *workplace) unpack(ctx context.Context, archive []byte) error {
	return w.s.reconciler.Service.WriteFiles(ctx, w.lease, "/workspace", bytes.NewReader(archive))
}

// echo sends content through a command in the sandbox, over HTTP.
func (w *workplace) echo(ctx context.Context, content []byte) error {
	return echo(ctx, w.s.reconciler.Service, w.lease, echoPath, content)
}

// echo sends content through a program. The service runs the program.
func echo(ctx context.Context, of service.Service, lease sandbox.LeaseRef, program string, content []byte) error {
	res, err := of.Exec(ctx, lease, sandbox.ExecRequest{Command: []string{program}, Stdin: bytes.NewReader(content)})
	if err != nil {
		return err
	}
	if res.ExitCode != 0 || !bytes.Equal(res.Stdout, content) {
		return fmt.Errorf("echo of %d bytes ended with %d and %d bytes: %s",
			len(content), res.ExitCode, len(res.Stdout), res.Stderr)
	}
	return nil
}

// plainEcho sends content through a command as `docker exec` does.
func (w *workplace) plainEcho(ctx context.Context, content []byte) error {
	made, err := w.api.ContainerExecCreate(ctx, w.container, dockerapi.ExecOptions{
		Cmd: []string{echoPath}, AttachStdin: true, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	streams, err := w.api.ContainerExecAttach(ctx, made.ID, dockerapi.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer streams.Close()
	var sending errgroup.Group
	sending.Go(func() error {
		_, err := streams.Conn.Write(content)
		return errors.Join(err, streams.CloseWrite())
	})
	var out, problems bytes.Buffer
	_, err = dockerapi.StdCopy(&out, &problems, streams.Reader)
	if err = errors.Join(err, sending.Wait()); err != nil {
		return err
	}
	if !bytes.Equal(out.Bytes(), content) {
		return fmt.Errorf("docker exec echoed %d bytes as %d: %s", len(content), out.Len(), problems.Bytes())
	}
	_, err = w.api.ContainerExecInspect(ctx, made.ID)
	return err
}

// roomy creates an environment whose sandboxes have the size for which the targets of commands were set. With the
// default of half a core, the kernel would throttle even sequential commands.
func (s *stage) roomy(ctx context.Context) (id string, err error) {
	const roomy = "bench-commands"
	spec := sandbox.EnvironmentSpec{Type: sandbox.TypeRPG, Resources: sandbox.FormerDefaultResources}
	return roomy, s.environment(ctx, sandbox.PutEnvironment{ID: roomy, EnvironmentSpec: spec})
}

// commands measures concurrent commands, the input and output of one command, and the upload of an archive.
func commands(ctx context.Context, s *stage, o options) (_ []result, err error) {
	id, err := s.roomy(ctx)
	if err != nil {
		return nil, err
	}
	w, err := s.workplace(ctx, id, "did:plc:commands")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close(context.WithoutCancel(ctx))) }()
	least, stop, err := startFloor(ctx, s, "commands")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	bare := func(ctx context.Context, content []byte) error {
		return echo(ctx, least, w.lease, filepath.Join(s.state, "echo"), content)
	}
	results, err := w.floods(ctx, bare)
	if err != nil {
		return nil, err
	}
	content := randomBytes(echoed)
	took, err := inTurns(o.rounds,
		func() error { return w.plainEcho(ctx, content) },
		func() error { return w.echo(ctx, content) },
		func() error { return bare(ctx, content) })
	if err != nil {
		return nil, err
	}
	results = append(results,
		atMost("64 KiB in and out of a command over HTTP", milliseconds(took[1]), "ms, p50", echoTarget,
			fmt.Sprintf("docker exec takes %.1f ms", milliseconds(took[0]))),
		result{"64 KiB in and out of a command over HTTP, the least", milliseconds(took[2]), "ms, p50", 0, true, leastDetail})
	archive := archived("large", randomBytes(unpacked))
	took, err = inTurns(unpackRounds,
		func() error {
			return w.api.CopyToContainer(ctx, w.container, "/workspace", bytes.NewReader(archive),
				dockerapi.CopyToContainerOptions{})
		},
		func() error { return w.unpack(ctx, archive) },
		func() error { return least.WriteFiles(ctx, w.lease, "/workspace", bytes.NewReader(archive)) })
	if err != nil {
		return nil, err
	}
	return append(results,
		ratio("100 MiB as tar into a sandbox / the engine's own copy", took[1], took[0], unpackingTarget),
		compared("100 MiB as tar over HTTP to a file, the least / the engine's own copy", took[2], took[0])), nil
}

// leastDetail explains the results named "the least".
const leastDetail = "the same API, program and commits without a sandbox"

const (
	// blocks is how often the ways of one comparison alternate.
	blocks = 4
	// settleTime is the pause between two blocks. After docker exec has answered, the engine still cleans up, which would
	// slow the next block.
	settleTime = time.Second
)

// inTurns returns the median time of each way. The ways alternate in blocks of rounds. The first round of each block
// only fills caches.
func inTurns(rounds int, ways ...func() error) ([]time.Duration, error) {
	took := make([][]time.Duration, len(ways))
	for range blocks {
		for i, do := range ways {
			time.Sleep(settleTime)
			for round := range (rounds+blocks-1)/blocks + 1 {
				d, err := timed(do)
				if err != nil {
					return nil, err
				}
				if round > 0 {
					took[i] = append(took[i], d)
				}
			}
		}
	}
	medians := make([]time.Duration, len(ways))
	for i := range ways {
		medians[i] = median(took[i])
	}
	return medians, nil
}

// floods runs commands from many clients at the same time, at full speed: in the sandbox, and without it.
func (w *workplace) floods(ctx context.Context, bare func(context.Context, []byte) error) ([]result, error) {
	own, err := w.s.reconciler.CPU()
	if err != nil {
		return nil, err
	}
	ours, err := loadOf(ctx, func(ctx context.Context) error { return w.echo(ctx, nil) })
	if err != nil {
		return nil, err
	}
	ownAfter, err := w.s.reconciler.CPU()
	if err != nil {
		return nil, err
	}
	least, err := loadOf(ctx, func(ctx context.Context) error { return bare(ctx, nil) })
	if err != nil {
		return nil, err
	}
	return []result{
		atLeast(fmt.Sprintf("commands over HTTP, %d clients", commandClients), ours.rate(), "1/s", commandRate,
			fmt.Sprintf("%d in %.1f s, in a sandbox with 2 CPUs", ours.n, ours.took.Seconds())),
		{fmt.Sprintf("commands over HTTP, %d clients, the most", commandClients), least.rate(), "1/s", 0, true, leastDetail},
		atMost("CPU of a command, the whole machine", ours.each(ours.machine), "ms", commandCPU,
			"with this program and the engine"),
		{"CPU of a command, the whole machine, the least", least.each(least.machine), "ms", 0, true, leastDetail},
		atMost("CPU of a command, the reconciler", ours.each(ownAfter-own), "ms", commandOwnCPU, ""),
	}, nil
}

// load is the number of operations, the time that they took, and the CPU time of the whole machine.
type load struct {
	n             int64
	took, machine time.Duration
}

func (l load) rate() float64 { return float64(l.n) / l.took.Seconds() }

func (l load) each(d time.Duration) float64 { return milliseconds(d) / float64(l.n) }

func loadOf(ctx context.Context, run func(context.Context) error) (l load, err error) {
	if err := run(ctx); err != nil { // fills caches
		return l, err
	}
	before, err := machineCPU()
	if err != nil {
		return l, err
	}
	if l.n, l.took, err = fromClients(ctx, run); err != nil {
		return l, err
	}
	after, err := machineCPU()
	l.machine = after - before
	return l, err
}

// fromClients runs many clients, each of which repeats an operation without a pause. It returns the number of
// operations and the time that they took.
func fromClients(ctx context.Context, do func(context.Context) error) (n int64, took time.Duration, err error) {
	var done atomic.Int64
	began := time.Now()
	g, running := errgroup.WithContext(ctx)
	for range commandClients {
		g.Go(func() error {
			for time.Since(began) < commandFlood {
				if err := do(running); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	err = g.Wait()
	return done.Load(), time.Since(began), err
}

// machineCPU returns the CPU time of the whole machine since boot. It needs Linux.
func machineCPU() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var ticks int64
	for i, f := range strings.Fields(line) {
		const idle, ioWait, guest = 4, 5, 9 // proc(5); user time includes a guest's time
		if i == 0 || i == idle || i == ioWait || i >= guest {
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of the machine: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil // USER_HZ
}

// install compiles a program of this folder for the engine's architecture, and puts it into /workspace. The stage's
// directory keeps a copy.
func (w *workplace) install(ctx context.Context, name string) error {
	arch, err := harness.Docker(ctx, "version", "--format", "{{.Server.Arch}}")
	if err != nil {
		return err
	}
	file := filepath.Join(w.s.state, name)
	build := harness.Command(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./scripts/bench/"+name)
	build.Dir = w.s.root
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+strings.Join(arch, ""))
	if _, err := harness.Collect(build); err != nil {
		return err
	}
	program, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return w.unpack(ctx, archived(name, program))
}

// archived returns a tar stream of one executable file.
func archived(name string, content []byte) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	// A buffer never fails.
	_ = w.WriteHeader(
		&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), ModTime: time.Now(), Uid: 1000, Gid: 1000})
	_, _ = io.Copy(w, bytes.NewReader(content))
	_ = w.Close()
	return out.Bytes()
}

// randomBytes returns bytes that no transport can compress.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // never fails
	return b
}
