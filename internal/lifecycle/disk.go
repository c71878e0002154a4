package lifecycle

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// On a backend where a sandbox that stops loses its disk (no driver.Capabilities.Disk), the environment may want the
// disk to outlive a sleep. The backend then says what became of it, and the events of the sandbox tell.

// keepsDisk reports whether a sandbox that is made now is to keep its disk.
func (c *Core) keepsDisk(ctx context.Context, t *Task) (keep bool, err error) {
	if !t.On.Capabilities().KeepsDisk {
		return false, nil
	}
	err = c.store.Read(ctx, func(tx *ledger.Tx) error {
		env, err := tx.KnownEnvironment(t.Row.EnvironmentID)
		if err == nil {
			keep = env.Spec.KeepDisk
		}
		return err
	})
	return keep, err
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
