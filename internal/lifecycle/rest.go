package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A sandbox sleeps and wakes in place. A step that does so ends early when the lease ends.
//
// On a backend where a sandbox that stops loses its disk (no driver.Capabilities.Disk), the environment may want the
// disk to outlive a sleep. The backend then says what became of it, and the events of the sandbox tell.

// sleep puts a sandbox to sleep.
func (c *Core) sleep(ctx context.Context, t *Task) (out outcome) {
	out.usage = c.sample(ctx, t.On, t.Handle, &t.Row)
	ctx, stop := c.resting(ctx, t)
	defer stop()
	out.err = t.On.Sleep(ctx, t.Handle, t.Row.SleepMode)
	out = seeDisk(ctx, t, out)
	out.err = unlessEnded(ctx, out.err)
	return out
}

// halt stops a failed sandbox that is kept.
func halt(ctx context.Context, t *Task) outcome {
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	defer cancel()
	return outcome{err: t.On.Sleep(ctx, t.Handle, sandbox.SleepStop)}
}

// wake wakes a sandbox and fills it again.
func (c *Core) wake(ctx context.Context, t *Task) (out outcome) {
	ctx, stop := c.resting(ctx, t)
	defer stop()
	out.started, out.err = t.On.Wake(ctx, t.Handle)
	if out = seeDisk(ctx, t, out); out.err == nil {
		out.settles, out.err = c.fillAgain(ctx, t)
	}
	out.err = unlessEnded(ctx, out.err)
	return out
}

// resting returns the context of a step that puts a sandbox to sleep or wakes it. It ends early when the lease ends: a
// sandbox that is to be gone does not first save its disk, or start. The returned function ends it too.
func (c *Core) resting(ctx context.Context, t *Task) (context.Context, func()) {
	limit := restTimeout
	if !t.On.Capabilities().Disk {
		limit = copyTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	if t.Last() {
		return ctx, cancel
	}
	ctx, stop := c.whileWanted(ctx, t.Row.ID, watchAfter, errEnded)
	return ctx, func() { stop(); cancel() }
}

var errEnded = sandbox.Errorf(sandbox.LeaseEnded, "the lease has ended meanwhile: acquire it again")

// unlessEnded returns the error of a step, or errEnded if that is why it failed.
func unlessEnded(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errEnded) {
		return errEnded
	}
	return err
}

// WhileWanted returns a context, part of ctx, that ends with the cause when a sandbox is to be gone: a caller that ends
// a lease does not wait for what makes it ready. A nil cause is context.Canceled. The function that it returns ends it
// too.
func (c *Core) WhileWanted(ctx context.Context, sandboxID string, cause error) (context.Context, func()) {
	return c.whileWanted(ctx, sandboxID, 0, cause)
}

// whileWanted is WhileWanted that looks at the sandbox only after a while: what is over by then costs no reads.
func (c *Core) whileWanted(ctx context.Context, sandboxID string, after time.Duration,
	cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if after > 0 && c.Pause(ctx, nil, micro.At(c.now().Add(after))) != nil { // ctx or the service has ended
			return
		}
		for {
			changed := c.store.Changed()
			var isWanted bool
			err := c.store.Read(ctx, func(tx *ledger.Tx) (err error) {
				isWanted, err = tx.IsWanted(sandboxID)
				return err
			})
			if err == nil && !isWanted {
				cancel(cause)
				return
			}
			if c.Pause(ctx, changed, micro.At(c.store.Now().Add(ClaimTTL))) != nil { // ctx or the service has ended
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

// seeDisk asks what became of the disk of a sandbox that has just been put to sleep or woken. If the backend does not
// answer, the step is taken again.
func seeDisk(ctx context.Context, t *Task, out outcome) outcome {
	if out.err != nil || !t.On.Capabilities().KeepsDisk {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	obs, err := t.On.Inspect(ctx, t.Handle)
	out.err, out.disk = err, obs.Disk
	return out
}

// withDisk adds what became of the disk to the data of an event.
func withDisk(data map[string]any, disk *sandbox.KeptDisk) map[string]any {
	if disk != nil {
		data["disk"] = disk
	}
	return data
}

// wokeWith records the start of a sandbox that was asleep. One that has lost its disk has an event of its own.
func (c *Core) wokeWith(tx *ledger.Tx, s *ledger.Sandbox, disk *sandbox.KeptDisk) error {
	if disk != nil && disk.Lost != "" {
		if err := tx.AppendSandboxEvent(s, sandbox.EventDiskLost, sandbox.DiskLost{Reason: disk.Lost}); err != nil {
			return err
		}
	}
	var data any // the event has none without a disk
	if disk != nil {
		data = map[string]any{"disk": disk}
	}
	return c.EnterPhase(tx, s, sandbox.PhaseAwake, tx.Now, sandbox.EventAwake, data)
}
