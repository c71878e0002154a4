//go:build linux

package broker

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/cgroup"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/files"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/identity"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/lease"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/memory"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// broker carries out operations.
type broker struct {
	cfg    Config
	keeper *parent
	files  files.Worker
	saver  files.Worker      // also reads files that the sandbox's user may not, if the broker can
	own    *identity.Workers // workers as the sandbox's user
	memory *memory.Tidier
	ready  atomic.Bool // process 1 has been ready
}

// handle is a channel.Handler.
func (b *broker) handle(ctx context.Context, r channel.Request, in io.Reader, out *wire.Writer) wire.Result {
	if r.Op != channel.OpShutdown && !b.ready.Load() {
		if err := awaitReady(ctx); err != nil {
			return failure(err)
		}
		b.ready.Store(true)
	}
	b.memory.Busy()
	defer b.memory.Busy()
	res := b.carryOut(ctx, r, in, out)
	if r.ReportData {
		res.Data = b.saver.Fingerprint(ctx, sandbox.DataDir)
	}
	if err := b.cfg.ownProc(); err != nil {
		return failure(err)
	}
	if r.ReportData || r.Op == channel.OpSave || r.Op == channel.OpExec || r.Op == channel.OpVerify {
		res.CPUTime, _ = cgroup.CPUTime() // 0 on a kernel that does not count it
	}
	return res
}

func (b *broker) carryOut(ctx context.Context, r channel.Request, in io.Reader, out *wire.Writer) wire.Result {
	switch r.Op {
	case channel.OpExec, channel.OpProcess, channel.OpVerify:
		if r.Exec == nil {
			return invalid("the request contains no command")
		}
		return b.exec(ctx, r, in, out)
	case channel.OpFollow:
		if r.Follow == nil {
			r.Follow = &channel.Follow{}
		}
		return b.follow(ctx, r, in, out)
	case channel.OpEnd:
		res, _ := refusal(b.keeper.ask(ctx, link.Message{Kind: link.End, ID: r.ID}))
		return res
	case channel.OpAssign:
		return b.assign(ctx, r)
	case channel.OpPort:
		return awaitPort(ctx, r.Port)
	case channel.OpConnect:
		return connect(ctx, r.Port, in, out)
	case channel.OpPut, channel.OpGet, channel.OpFile, channel.OpSecrets:
		r.ReportData = false // see handle
		return b.files.Serve(ctx, r, in, out)
	case channel.OpSave:
		return b.save(ctx, r, out)
	case channel.OpUsage:
		if err := cgroup.Sample(len(proc.All()), out.Stdout()); err != nil {
			return failure(err)
		}
		return wire.Result{}
	case channel.OpShutdown:
		res, _ := refusal(b.keeper.ask(ctx, link.Message{Kind: link.Shutdown}))
		return res
	default:
		return invalid(fmt.Sprintf("the guest does not support operation %q", r.Op))
	}
}

func failure(err error) wire.Result {
	return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
}

func invalid(message string) wire.Result {
	return wire.Result{Problem: wire.ProblemInvalid, Message: message}
}

// assign gives the sandbox to a lease. Commands that start after the answer have the lease's variables.
func (b *broker) assign(ctx context.Context, r channel.Request) wire.Result {
	if r.Lease == nil {
		return invalid("the request contains no lease")
	}
	if res, refused := refusal(b.keeper.ask(ctx, link.Message{Kind: link.Assign, Lease: r.Lease})); refused {
		return res
	}
	if err := lease.SetEnviron(r.Lease.Env); err != nil {
		return failure(err)
	}
	return wire.Result{}
}

// save packs a directory while the programs are frozen.
func (b *broker) save(ctx context.Context, r channel.Request, out *wire.Writer) wire.Result {
	s := channel.Save{}
	if r.Save != nil {
		s = *r.Save
	}
	whole := context.WithoutCancel(ctx) // the programs continue even if the caller is gone
	if res, refused := refusal(b.keeper.ask(whole, link.Message{Kind: link.Freeze, All: s.End})); refused {
		return res
	}
	res := b.saver.Save(ctx, string(r.Path), s, out.Stdout())
	if thawed, refused := refusal(b.keeper.ask(whole, link.Message{Kind: link.Thaw})); refused {
		return thawed
	}
	return res
}

const (
	// readyLimit limits the wait for process 1 at the start of a sandbox. It takes milliseconds; on a host whose disk or
	// cores are taken, it has taken more than 5 s.
	readyLimit = time.Minute
	readyPause = 2 * time.Millisecond
)

// awaitReady returns once process 1 is ready.
func awaitReady(ctx context.Context) error {
	for limit := time.Now().Add(readyLimit); ; {
		name, err := os.ReadFile("/proc/1/comm")
		if err == nil && string(name) == "sandbox-ready\n" {
			return nil
		}
		if time.Now().After(limit) {
			return fmt.Errorf("process 1 of the sandbox is not ready: it is %q", name)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(readyPause):
		}
	}
}
