package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

const (
	usedCommands = 1000 // run in a sandbox before its memory is measured
	openChannels = 20
)

// Targets of memory, in MB.
const (
	insideTarget  = 10
	channelTarget = 6
)

// memory measures the memory of the processes of a used sandbox. It also measures how much more host memory a sandbox
// with an open channel takes than a container of docker run. A shared page counts in parts.
func memory(ctx context.Context, s *stage, _ options) ([]result, error) {
	var each [3]int64 // the first result is dropped: it includes growth of the engine's heap
	for i, measure := range []func(context.Context, int64) (int64, error){s.plainMemory, s.plainMemory, s.channelMemory} {
		base, err := s.hostMemory(ctx, nil)
		if err != nil {
			return nil, err
		}
		if each[i], err = measure(ctx, base); err != nil {
			return nil, err
		}
	}
	plain, ours := each[1], each[2]
	inside, err := s.insideAfter(ctx, usedCommands)
	if err != nil {
		return nil, err
	}
	return []result{
		atMost(fmt.Sprintf("memory of the processes in a sandbox after %d commands", usedCommands), float64(inside)/1e6, "MB",
			insideTarget, "Pss"),
		atMost("host memory for a sandbox with an open channel, beyond docker run", float64(ours-plain)/1e6,
			"MB each", channelTarget, fmt.Sprintf("Pss of all processes, %.1f MB against %.1f MB, %d at once",
				float64(ours)/1e6, float64(plain)/1e6, openChannels)),
	}, nil
}

// idleTime is the wait after the last command: processes of a sandbox release memory after a second without work.
const idleTime = 2 * time.Second

// insideAfter runs commands in a sandbox and returns the memory of its idle processes. Other sandboxes share the pages
// of their program, as on any host with several sandboxes.
func (s *stage) insideAfter(ctx context.Context, commands int) (bytes int64, err error) {
	others, err := s.neighbours(ctx)
	defer func() { err = errors.Join(err, s.release(context.WithoutCancel(ctx), others)) }()
	if err != nil {
		return 0, err
	}
	w, err := s.workplace(ctx, environment, "did:plc:memory")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.close(context.WithoutCancel(ctx))) }()
	g, running := errgroup.WithContext(ctx)
	g.SetLimit(commandClients)
	for range commands {
		g.Go(func() error { return w.echo(running, nil) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	time.Sleep(idleTime)
	pids, err := processesOf(ctx, w.container)
	if err != nil {
		return 0, err
	}
	return pss(pids)
}

// neighbours returns leases of sandboxes in which a command has run.
func (s *stage) neighbours(ctx context.Context) (leases []sandbox.LeaseRef, err error) {
	for i := range openChannels {
		got, err := s.reconciler.Service.Acquire(ctx,
			sandbox.Acquire{AgentDID: fmt.Sprint("did:plc:channel", i), EnvironmentID: environment})
		if err != nil {
			return leases, err
		}
		l := sandbox.LeaseRef{ID: got.Lease.ID}
		leases = append(leases, l)
		if _, err := s.reconciler.Service.Exec(ctx, l, sandbox.ExecRequest{Command: []string{"/player"}}); err != nil {
			return leases, err
		}
	}
	return leases, nil
}

func (s *stage) release(ctx context.Context, leases []sandbox.LeaseRef) (err error) {
	for _, l := range leases {
		_, e := s.reconciler.Service.Release(ctx, l)
		err = errors.Join(err, e)
	}
	return err
}

// channelMemory returns the additional host memory for each sandbox in which a command has run.
func (s *stage) channelMemory(ctx context.Context, base int64) (each int64, err error) {
	leases, err := s.neighbours(ctx)
	defer func() { err = errors.Join(err, s.release(context.WithoutCancel(ctx), leases)) }()
	if err != nil {
		return 0, err
	}
	taken, err := s.hostMemory(ctx, nil)
	return (taken - base) / openChannels, err
}

// plainMemory returns the additional host memory for each container that docker runs.
func (s *stage) plainMemory(ctx context.Context, base int64) (each int64, err error) {
	var made []plain
	defer func() {
		for _, p := range made {
			ctx := context.WithoutCancel(ctx)
			_, removing := harness.Docker(ctx, "rm", "--force", p.name)
			_, cleaning := harness.Docker(ctx, append([]string{"volume", "rm"}, p.volumes()...)...)
			err = errors.Join(err, removing, cleaning)
		}
	}()
	var names []string
	for i := range openChannels {
		p := plain{fmt.Sprintf("sandbox-bench-memory-%d", i)}
		made = append(made, p)
		if err := p.run(ctx); err != nil {
			return 0, err
		}
		names = append(names, p.name)
	}
	taken, err := s.hostMemory(ctx, names)
	return (taken - base) / openChannels, err
}

// hostMemory returns the memory of the reconciler, of the engine, and of the processes in the ledger's and the given
// containers.
func (s *stage) hostMemory(ctx context.Context, containers []string) (int64, error) {
	own, err := s.containers(ctx)
	if err != nil {
		return 0, err
	}
	ids := own
	if len(containers) > 0 {
		named, err := harness.Docker(ctx, append([]string{"inspect", "--format", "{{.Id}}"}, containers...)...)
		if err != nil {
			return 0, err
		}
		ids = append(ids, named...)
	}
	daemon, err := s.reconciler.PID()
	if err != nil {
		return 0, err
	}
	pids := []int{daemon}
	keepers, err := keepersOf(ids)
	if err != nil {
		return 0, err
	}
	pids = append(pids, keepers...)
	for _, id := range ids {
		inside, err := processesOf(ctx, id)
		if err != nil {
			return 0, err
		}
		pids = append(pids, inside...)
	}
	return pss(pids)
}

// keepersOf returns the processes of the engine: its daemons and clients, and the shims of these containers.
func keepersOf(containers []string) (pids []int, err error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, name := range lines {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has exited
		}
		args := strings.Split(string(text), "\x00")
		keeps := false
		switch filepath.Base(args[0]) {
		case "dockerd", "containerd", "docker":
			keeps = true
		case "containerd-shim-runc-v2", "containerd-shim":
			for _, id := range containers {
				keeps = keeps || strings.Contains(string(text), id)
			}
		}
		if !keeps {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// processesOf returns the ids of a container's processes on this machine.
func processesOf(ctx context.Context, container string) (pids []int, err error) {
	lines, err := harness.Docker(ctx, "top", container, "-eo", "pid")
	if err != nil {
		return nil, err
	}
	for _, line := range lines[1:] { // without the title
		pid, err := strconv.Atoi(line)
		if err != nil {
			return nil, fmt.Errorf("read docker top %s: %w", container, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// pss sums the memory of processes; a shared page counts in parts. It needs Linux and root.
func pss(pids []int) (bytes int64, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has exited
		}
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(string(text)) {
			var kB int64
			if _, err := fmt.Sscanf(line, "Pss: %d kB", &kB); err == nil {
				bytes += kB << 10
			}
		}
	}
	return bytes, nil
}
