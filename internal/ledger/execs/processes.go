package execs

import (
	"maps"
	"slices"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Process is a row of processes.
type Process struct {
	SandboxID  string `gorm:"primaryKey"`
	Name       string `gorm:"primaryKey"`
	LeaseID    string
	Generation int64
	Declared   ledger.Flag
	Command    []string `gorm:"serializer:json"`
	EnvNames   []string `gorm:"serializer:json"`
	// Env is kept as long as the process may start.
	Env     map[string]string `gorm:"serializer:json"`
	Cwd     string
	RunAs   string
	Restart sandbox.Restart
	// Port is the port that serves HTTP, 0 if the process is not an agent.
	Port        int
	Description string

	State sandbox.ProcessState
	// Run is the backend's id of the latest start.
	Run string
	// Lost: the sandbox was stopped, and the process is started again under the same id. So a late start is the same
	// start, and not a second one.
	Lost      ledger.Flag
	Starts    int64
	StartedAt micro.Time
	// Failures counts consecutive starts that did not last.
	Failures  int64
	ExitedAt  micro.Time
	ExitCode  int
	OOMKilled ledger.Flag `gorm:"column:oom_killed"`
	Error     string
	KillAt    micro.Time // since when it must end

	// DueAt is the earliest start of a pending process, or until when a running one has its holder.
	DueAt  micro.Time
	Holder string
}

// NewProcess returns the row of a process to start.
func NewProcess(s *ledger.Sandbox, p sandbox.ProcessSpec, declared bool, now micro.Time) *Process {
	env := make(map[string]string, len(p.Env)) // GORM stores a nil map as NULL
	maps.Copy(env, p.Env)
	row := &Process{
		SandboxID:  s.ID,
		Name:       p.Name,
		LeaseID:    s.Lease(),
		Generation: s.Generation,
		Declared:   ledger.Flag(declared),
		Command:    p.Command,
		EnvNames:   append([]string{}, slices.Sorted(maps.Keys(p.Env))...),
		Env:        env,
		Cwd:        p.Cwd,
		RunAs:      p.User,
		Restart:    p.Restart,
		State:      sandbox.ProcessPending,
		DueAt:      now,
	}
	if p.Endpoint != nil {
		row.Port, row.Description = p.Endpoint.Port, p.Endpoint.Description
	}
	return row
}

// Domain converts the process to the domain type.
func (p *Process) Domain() sandbox.Process {
	d := sandbox.Process{
		Name: p.Name, LeaseID: p.LeaseID, Generation: p.Generation, SandboxID: p.SandboxID, Command: p.Command,
		EnvNames: p.EnvNames,
		Cwd:      p.Cwd, User: p.RunAs, Restart: p.Restart, Declared: bool(p.Declared), State: p.State, Starts: p.Starts,
		StartedAt: p.StartedAt.Time(), ExitedAt: p.ExitedAt.Time(),
		OOMKilled: bool(p.OOMKilled), Error: p.Error,
	}
	if p.ExitedAt != 0 && p.Error == "" && p.State != sandbox.ProcessKilled {
		d.ExitCode = new(p.ExitCode)
	}
	if p.Port != 0 {
		d.Endpoint = &sandbox.Endpoint{Port: p.Port, Description: p.Description}
	}
	if p.State == sandbox.ProcessPending {
		d.NextStartAt = p.DueAt.Time()
	}
	return d
}

// Process returns a process of a sandbox by its name, nil if it does not exist.
func (repo Rows) Process(sandboxID, name string) (*Process, error) {
	return storage.First[Process](repo.tx, "sandbox_id = ? AND name = ?", sandboxID, name)
}

// SaveProcess stores a process, new or changed.
func (repo Rows) SaveProcess(p *Process) error { return storage.Save(repo.tx, p) }

// CreateProcesses stores new processes.
func (repo Rows) CreateProcesses(rows []*Process) error {
	if len(rows) == 0 {
		return nil
	}
	return storage.Create(repo.tx, &rows)
}

// Processes returns the processes of a sandbox, by name.
func (repo Rows) Processes(sandboxID string) ([]Process, error) {
	return storage.Find[Process](repo.db.Where("sandbox_id = ?", sandboxID).Order("name"))
}

// liveProcess is the condition of the index processes_live.
const liveProcess = "state IN ('pending', 'running')"

// DueProcesses returns up to limit processes to start, or that run without a follower. Their sandboxes are awake, on
// one of the given instances, and have the given id unless it is "".
func (repo Rows) DueProcesses(instances []string, sandboxID string, limit int) ([]Process, error) {
	q := repo.db.Where(liveProcess+" AND due_at <= ?", repo.tx.Now).
		Where("EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = processes.sandbox_id AND phase = 'awake' AND desired = "+
			"'present' AND instance IN ?)", instances)
	if sandboxID != "" {
		q = q.Where("sandbox_id = ?", sandboxID)
	}
	return storage.Find[Process](q.Order("due_at, name").Limit(limit))
}

// KilledProcesses returns up to limit running processes that must end. Their sandboxes are awake and on one of the
// given instances.
func (repo Rows) KilledProcesses(instances []string, limit int) ([]Process, error) {
	return storage.Find[Process](repo.db.Where(liveProcess+" AND state = 'running' AND kill_at > 0").
		Where("EXISTS (SELECT 1 FROM sandboxes WHERE sandboxes.id = processes.sandbox_id AND phase = 'awake' AND desired = "+
			"'present' AND instance IN ?)", instances).Order("kill_at, name").Limit(limit))
}

// NextProcess returns when the next process is due after a time, Never if none is.
func (repo Rows) NextProcess(after micro.Time) (micro.Time, error) {
	var next []micro.Time
	err := repo.db.Model(&Process{}).Where(liveProcess+" AND due_at > ?", after).Order("due_at").Limit(1).
		Pluck("due_at", &next).Error
	if err != nil || len(next) == 0 {
		return micro.Never, storage.Error("looking for processes", err)
	}
	return next[0], nil
}

// ExtendProcesses extends the given holders' right to follow their processes until a time.
func (repo Rows) ExtendProcesses(holders []string, until micro.Time) error {
	_, err := storage.RowCount("extending processes",
		repo.db.Model(&Process{}).Where("state = 'running' AND holder IN ?", holders).Update("due_at", until))
	return err
}

// StopProcesses records that the processes of a sandbox ended with it.
func (repo Rows) StopProcesses(sandboxID, why string) error {
	_, err := storage.RowCount("stopping processes",
		repo.db.Model(&Process{}).Where("sandbox_id = ? AND "+liveProcess, sandboxID).
			Updates(map[string]any{
				"state":     sandbox.ProcessStopped,
				"exited_at": repo.tx.Now,
				"error":     why,
				"env":       gorm.Expr("'{}'"),
				"holder":    "",
			}))
	return err
}

// RemoveProcess removes a process.
func (repo Rows) RemoveProcess(p *Process) error {
	return storage.Error("removing a process", repo.db.Delete(p).Error)
}

// purgeProcesses removes the processes of purged sandboxes.
func (repo Rows) purgeProcesses(sandboxIDs []string) error {
	_, err := storage.RowCount("purging processes", repo.db.Where("sandbox_id IN ?", sandboxIDs).Delete(&Process{}))
	return err
}
