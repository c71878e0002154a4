package execs

import (
	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Exec is a row of execs: one command.
type Exec struct {
	ID         string `gorm:"primaryKey"`
	Named      ledger.Flag
	SandboxID  string
	LeaseID    string
	Generation int64
	Sequence   int64
	Command    []string `gorm:"serializer:json"`
	EnvNames   []string `gorm:"serializer:json"`
	Cwd        string
	// RunAs is the user, or AsVerifier.
	RunAs    string
	Timeout  micro.Span
	Detached ledger.Flag
	// SessionID is its session, "" for none. IsShell: it is a line of the session's shell.
	SessionID string
	IsShell   ledger.Flag `gorm:"column:shell"`
	Source    sandbox.EventSource

	State      sandbox.ExecState
	StartedAt  micro.Time
	FinishedAt micro.Time
	CancelAt   micro.Time
	ExitCode   int
	TimedOut   ledger.Flag
	OOMKilled  ledger.Flag `gorm:"column:oom_killed"`
	Error      string
	Stdout     Output     `gorm:"embedded;embeddedPrefix:stdout_"`
	Stderr     Output     `gorm:"embedded;embeddedPrefix:stderr_"`
	DroppedAt  micro.Time // when its kept output was deleted

	Holder    string
	HeldUntil micro.Time

	counted int64 // counted bytes when the row was read
}

// AfterFind implements gorm's hook.
func (x *Exec) AfterFind(*gorm.DB) error {
	x.counted = x.kept()
	return nil
}

// kept is the size of an ended command's kept output, in bytes.
func (x *Exec) kept() int64 {
	if x.State == sandbox.ExecRunning {
		return 0
	}
	return x.Stdout.Kept + x.Stderr.Kept
}

// OutputObject names the object of a stream's large output. The name contains the holder that followed the command to
// its end, so that no other holder can replace the object.
func (x *Exec) OutputObject(stream sandbox.ExecStream) string {
	return "execs/" + x.SandboxID + "/" + x.ID + "-" + x.Holder + "/" + string(stream)
}

// Output describes one stream of an ended command.
type Output struct {
	Bytes int64
	Kept  int64
	// Inline is the kept output, unless it is an object.
	Inline []byte
}

// IsObject reports whether the kept output is an object.
func (o Output) IsObject() bool { return o.Kept > int64(len(o.Inline)) }

// As returns the role of the command.
func (x *Exec) As() sandbox.ExecAs {
	if x.RunAs == string(sandbox.AsVerifier) {
		return sandbox.AsVerifier
	}
	return ""
}

// User returns the user requested for the command.
func (x *Exec) User() string {
	if x.As() != "" {
		return ""
	}
	return x.RunAs
}

// Domain returns the command as of an event of its sandbox.
func (x *Exec) Domain(lastSequence int64) sandbox.Exec {
	d := sandbox.Exec{
		ID: x.ID, LeaseID: x.LeaseID, Generation: x.Generation, SandboxID: x.SandboxID,
		Command: x.Command, EnvNames: x.EnvNames, Cwd: x.Cwd, User: x.User(), As: x.As(), Timeout: x.Timeout.Duration(),
		Detached: bool(x.Detached), SessionID: x.SessionID,
		State: x.State, StartedAt: x.StartedAt.Time(), FinishedAt: x.FinishedAt.Time(),
		TimedOut: bool(x.TimedOut), OOMKilled: bool(x.OOMKilled), Error: x.Error,
		StdoutBytes: x.Stdout.Bytes, StderrBytes: x.Stderr.Bytes,
		Truncated:         x.Stdout.Kept < x.Stdout.Bytes || x.Stderr.Kept < x.Stderr.Bytes,
		DroppedAt:         x.DroppedAt.Time(),
		LastEventSequence: lastSequence,
	}
	if x.State == sandbox.ExecFinished {
		d.ExitCode = new(x.ExitCode)
	}
	return d
}

// Exec returns a command, nil if it does not exist.
func (repo Rows) Exec(id string) (*Exec, error) {
	return storage.First[Exec](repo.tx, "id = ?", id)
}

// CreateExec stores a new command. Errors: Conflict for an id that was ever used.
func (repo Rows) CreateExec(x *Exec) error {
	if x.Named {
		var used int64
		err := repo.db.Raw("SELECT (SELECT count(*) FROM execs WHERE id = @id) + (SELECT count(*) "+
			"FROM retired_execs WHERE id = @id)",
			map[string]any{"id": x.ID}).Scan(&used).Error
		if err != nil {
			return storage.Error("looking for a command", err)
		}
		if used > 0 {
			return sandbox.Errorf(sandbox.Conflict, "the id %s was already used for another command: "+
				"choose another id", x.ID).WithReason(sandbox.ReasonOtherSettings)
		}
	}
	return storage.Create(repo.tx, x)
}

// SaveExec stores a changed command, and counts the kept output of an ended one.
func (repo Rows) SaveExec(x *Exec) error {
	if err := storage.Save(repo.tx, x); err != nil {
		return err
	}
	counted := x.counted
	x.counted = x.kept()
	return repo.countKept(
		&KeptOutput{SandboxID: x.SandboxID, Kind: keptExec, ID: x.ID, LeaseID: x.LeaseID, Bytes: x.counted}, counted)
}

// ListExecs returns the commands of a lease, newest first, without their output.
func (repo Rows) ListExecs(f sandbox.ExecFilter) ([]Exec, error) {
	q := repo.db.Omit("stdout_inline", "stderr_inline").Where("lease_id = ?", f.LeaseID).
		Order("generation DESC, sequence DESC").Limit(storage.PageSize(f.Limit))
	if f.State != "" {
		q = q.Where("state = ?", f.State)
	}
	if f.Before != "" {
		last, err := repo.Exec(f.Before)
		if err != nil {
			return nil, err
		}
		if last == nil || last.LeaseID != f.LeaseID {
			return nil, sandbox.Errorf(sandbox.NotFound, "lease %s has no command %s: list from the latest",
				f.LeaseID, f.Before).WithReason(sandbox.ReasonExecNotFound)
		}
		q = q.Where("(generation, sequence) < (?, ?)", last.Generation, last.Sequence)
	}
	return storage.Find[Exec](q)
}

// ExtendExecs extends the given holders' right to follow their commands until a time.
func (repo Rows) ExtendExecs(holders []string, until micro.Time) error {
	_, err := storage.RowCount("extending commands",
		repo.db.Model(&Exec{}).Where("state = 'running' AND holder IN ?", holders).Update("held_until", until))
	return err
}

// RunningExecs returns the running commands of a sandbox.
func (repo Rows) RunningExecs(sandboxID string) ([]Exec, error) {
	return storage.Find[Exec](repo.db.Where("sandbox_id = ? AND state = 'running'", sandboxID).Order("sequence"))
}

// CancelledExecs returns up to limit running commands that must end. Their sandboxes are awake and on one of the given
// instances.
func (repo Rows) CancelledExecs(instances []string, limit int) ([]Exec, error) {
	return storage.Find[Exec](repo.db.Omit("stdout_inline", "stderr_inline").Where("state = 'running' AND cancel_at > 0").
		Where("EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = execs.sandbox_id AND phase = 'awake' AND desired = "+
			"'present' AND instance IN ?)", instances).Order("cancel_at, id").Limit(limit))
}

// OrphanedExecs returns running commands without a follower, longest first, whose sandbox is on one of the
// given instances or will be removed. It skips those of a sandbox that is being created: they belong to its
// creator.
func (repo Rows) OrphanedExecs(instances []string, limit int) ([]Exec, error) {
	return storage.Find[Exec](repo.db.Where("state = 'running' AND held_until <= ?", repo.tx.Now).
		Where("EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = execs.sandbox_id AND (desired = 'gone' OR phase <> "+
			"'pending' AND instance IN ?))", instances).
		Order("held_until").Limit(limit))
}

// purgeExecs removes the commands of purged sandboxes, marks their output for deletion, and keeps the ids
// that callers chose.
func (repo Rows) purgeExecs(sandboxIDs []string, objects func(*Exec) []string) error {
	rows, err := storage.Find[Exec](repo.db.Omit("stdout_inline", "stderr_inline").Where("sandbox_id IN ?", sandboxIDs))
	if err != nil || len(rows) == 0 {
		return err
	}
	for i := range rows {
		x := &rows[i]
		if x.Named {
			if err := repo.db.Exec("INSERT INTO retired_execs (id) VALUES (?)", x.ID).Error; err != nil {
				return storage.Error("purging commands", err)
			}
		}
		for _, object := range objects(x) {
			if err := bucketobjects.In(repo.tx).MarkForDeletion(object, repo.tx.Now); err != nil {
				return err
			}
		}
	}
	_, err = storage.RowCount("purging commands", repo.db.Where("sandbox_id IN ?", sandboxIDs).Delete(&Exec{}))
	return err
}

// NextOrphan returns since when a running command has had no follower, or else the first time at which one will have
// none unless its holder lives. It returns Never if none runs.
func (repo Rows) NextOrphan() (micro.Time, error) {
	var first []micro.Time
	err := repo.db.Model(&Exec{}).Where("state = 'running'").Order("held_until").Limit(1).
		Pluck("held_until", &first).Error
	if err != nil || len(first) == 0 {
		return micro.Never, storage.Error("looking for commands", err)
	}
	return first[0], nil
}

// Purge removes the commands, sessions and processes of purged sandboxes, and stops counting their output. Recordings
// must already be purged. objects returns the objects that a command may have left in the bucket. Errors: Unavailable.
func (repo Rows) Purge(sandboxIDs []string, objects func(*Exec) []string) error {
	if err := repo.forgetKept(sandboxIDs); err != nil {
		return err
	}
	if err := repo.purgeExecs(sandboxIDs, objects); err != nil {
		return err
	}
	if err := repo.purgeSessions(sandboxIDs); err != nil {
		return err
	}
	return repo.purgeProcesses(sandboxIDs)
}
