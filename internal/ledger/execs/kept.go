package execs

import (
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Output of commands and recordings of sessions are counted when they are stored. One row holds the total of
// each lease, each environment and the whole ledger, and an index finds the oldest.

const (
	keptExec    = "exec"
	keptSession = "session"
	// keptWorkspace and a form are the id of a workspace of an ended lease. No command has such an id. A workspace has the
	// kind of commands, because the column allows no other kind.
	keptWorkspace = "workspace/"
)

// KeptOutput is a row of kept_outputs: the kept output of an ended command, a session's recording, or a form of the
// workspace of an ended lease.
type KeptOutput struct {
	SandboxID     string `gorm:"primaryKey"`
	Kind          string `gorm:"primaryKey"`
	ID            string `gorm:"primaryKey"`
	LeaseID       string
	EnvironmentID string
	KeptAt        micro.Time // time of the last write
	Bytes         int64
}

// WorkspaceObject names the object of a form of an ended lease's workspace, which is not in the ledger.
func WorkspaceObject(sandboxID string, form sandbox.WorkspaceForm) string {
	return "workspaces/" + sandboxID + "/" + string(form)
}

func (k *KeptOutput) workspaceObject() string {
	return WorkspaceObject(k.SandboxID, sandbox.WorkspaceForm(strings.TrimPrefix(k.ID, keptWorkspace)))
}

// KeptWorkspace reports whether a form of the workspace of a sandbox is kept.
func (repo Rows) KeptWorkspace(sandboxID string, form sandbox.WorkspaceForm) (bool, error) {
	row, err := repo.keptWorkspace(sandboxID, form)
	return row != nil, err
}

func (repo Rows) keptWorkspace(sandboxID string, form sandbox.WorkspaceForm) (*KeptOutput, error) {
	return storage.First[KeptOutput](repo.tx, "sandbox_id = ? AND kind = ? AND id = ?", sandboxID, keptExec,
		keptWorkspace+string(form))
}

// KeepWorkspace keeps and counts a form of an ended lease's workspace. Its object was marked for deletion while it was
// stored.
func (repo Rows) KeepWorkspace(s *ledger.Sandbox, form sandbox.WorkspaceForm, bytes int64) error {
	if err := bucketobjects.In(repo.tx).ForgetObjects([]string{WorkspaceObject(s.ID, form)}); err != nil {
		return err
	}
	is, err := repo.keptWorkspace(s.ID, form)
	counted := int64(0)
	if is != nil {
		counted = is.Bytes
	}
	if err != nil {
		return err
	}
	return repo.countKept(&KeptOutput{SandboxID: s.ID, Kind: keptExec, ID: keptWorkspace + string(form),
		LeaseID: s.Lease(), Bytes: bytes}, counted)
}

// KeptSum returns how much is kept, zero if there is no row.
func (repo Rows) KeptSum(scope ledger.KeptScope, id string) (ledger.KeptSum, error) {
	row, err := storage.First[ledger.KeptSum](repo.tx, "scope = ? AND id = ?", scope, id)
	if err != nil || row == nil {
		return ledger.KeptSum{Scope: scope, ID: id}, err
	}
	return *row, nil
}

// GrownSums returns the sums that have grown in the transaction since the last call.
func (repo Rows) GrownSums() []ledger.KeptSum {
	grown := repo.tx.Grown
	repo.tx.Grown = nil
	return grown
}

// KeptBeyond returns a sum above a number of bytes, nil if there is none.
func (repo Rows) KeptBeyond(scope ledger.KeptScope, bytes int64) (*ledger.KeptSum, error) {
	return storage.First[ledger.KeptSum](repo.tx, "scope = ? AND bytes > ?", scope, bytes)
}

// countKept counts the kept output of a command or session beyond the already counted bytes. It never
// shrinks.
func (repo Rows) countKept(k *KeptOutput, counted int64) (err error) {
	if k.Bytes <= counted {
		return nil
	}
	if _, k.EnvironmentID, err = sandbox.ParseLeaseID(k.LeaseID); err != nil {
		return err
	}
	err = repo.db.Exec(`INSERT INTO kept_outputs (sandbox_id, kind, id, lease_id, environment_id, kept_at, bytes)
		VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (sandbox_id, kind, id) DO UPDATE SET kept_at = excluded.kept_at, bytes = excluded.bytes`,
		k.SandboxID, k.Kind, k.ID, k.LeaseID, k.EnvironmentID, repo.tx.Now, k.Bytes).Error
	if err != nil {
		return storage.Error("counting the output that is kept", err)
	}
	records := int64(0)
	if counted == 0 {
		records = 1
	}
	return repo.addKept(k, k.Bytes-counted, records)
}

// resizeKept sets the size of a row, and removes it if nothing is left.
func (repo Rows) resizeKept(k *KeptOutput, bytes int64) error {
	by, records := bytes-k.Bytes, int64(0)
	k.Bytes = bytes
	var err error
	if bytes == 0 {
		records = -1
		_, err = storage.RowCount("no longer counting output", repo.db.Delete(k))
	} else {
		err = storage.Save(repo.tx, k)
	}
	if err != nil {
		return err
	}
	return repo.addKept(k, by, records)
}

// addKept adds to the sums of a row. A lease or environment without kept output has no sum.
func (repo Rows) addKept(k *KeptOutput, bytes, records int64) error {
	var sums []ledger.KeptSum
	err := repo.db.Raw(`INSERT INTO kept_sums (scope, id, bytes, records)
		VALUES (@lease, @of_lease, @bytes, @records), (@environment, @of_environment, @bytes, @records),
		(@ledger, '', @bytes, @records)
		ON CONFLICT (scope, id) DO UPDATE SET bytes = kept_sums.bytes + excluded.bytes,
		records = kept_sums.records + excluded.records
		RETURNING *`,
		map[string]any{
			"lease":          ledger.KeptOfLease,
			"of_lease":       k.LeaseID,
			"environment":    ledger.KeptOfEnvironment,
			"of_environment": k.EnvironmentID,
			"ledger":         ledger.KeptOfLedger,
			"bytes":          bytes,
			"records":        records,
		}).Scan(&sums).Error
	if bytes > 0 {
		repo.tx.Grown = append(repo.tx.Grown, sums...)
	}
	if err == nil && records < 0 {
		err = repo.db.Exec("DELETE FROM kept_sums WHERE (scope = ? AND id = ? OR scope = ? AND id = ?) AND records = 0",
			ledger.KeptOfLease, k.LeaseID, ledger.KeptOfEnvironment, k.EnvironmentID).Error
	}
	return storage.Error("counting the output that is kept", err)
}

// DropKept drops the oldest output of a lease, an environment or the ledger until it keeps at most a number
// of bytes, at most limit rows per call. objects returns the objects that a command may have left in the
// bucket, which are deleted at the given time.
func (repo Rows) DropKept(scope ledger.KeptScope, id string, bytes int64, limit int, objects func(*Exec) []string,
	deleteAt micro.Time) error {
	sum, err := repo.KeptSum(scope, id)
	if err != nil || sum.Bytes <= bytes {
		return err
	}
	oldest := repo.db.Order("kept_at").Limit(limit)
	switch scope {
	case ledger.KeptOfLease:
		oldest = oldest.Where("lease_id = ?", id)
	case ledger.KeptOfEnvironment:
		oldest = oldest.Where("environment_id = ?", id)
	}
	rows, err := storage.Find[KeptOutput](oldest)
	left := sum.Bytes
	for i := range rows {
		if err != nil || left <= bytes {
			break
		}
		var dropped int64
		var isGone bool
		dropped, isGone, err = repo.drop(&rows[i], objects, deleteAt)
		if left -= dropped; !isGone {
			break // the rest of a recording is dropped before anything newer
		}
	}
	return err
}

// drop drops the kept output of one command or session, or the start of a long recording. It returns the
// dropped amount.
func (repo Rows) drop(k *KeptOutput, objects func(*Exec) []string,
	deleteAt micro.Time) (bytes int64, isGone bool, err error) {
	was := k.Bytes
	left := int64(0)
	switch {
	case k.Kind == keptSession:
		left, err = repo.dropRecording(k)
	case strings.HasPrefix(k.ID, keptWorkspace):
		err = bucketobjects.In(repo.tx).MarkForDeletion(k.workspaceObject(), deleteAt)
	default:
		err = repo.dropOutput(k, objects, deleteAt)
	}
	if err != nil {
		return 0, false, err
	}
	if err := repo.resizeKept(k, left); err != nil {
		return 0, false, err
	}
	records := 0
	if left == 0 {
		records = 1
	}
	err = repo.db.Exec("UPDATE kept_sums SET dropped_bytes = dropped_bytes + ?, dropped_records = dropped_records + "+
		"? WHERE scope = ?", was-left, records, ledger.KeptOfLedger).Error
	return was - left, left == 0, storage.Error("counting the output that is dropped", err)
}

// dropOutput drops a command's kept output.
func (repo Rows) dropOutput(k *KeptOutput, objects func(*Exec) []string, deleteAt micro.Time) error {
	rows, err := storage.Find[Exec](repo.db.Omit("stdout_inline", "stderr_inline").Where("id = ?", k.ID))
	if err != nil || len(rows) == 0 {
		return err
	}
	for _, object := range objects(&rows[0]) {
		if err := bucketobjects.In(repo.tx).MarkForDeletion(object, deleteAt); err != nil {
			return err
		}
	}
	_, err = storage.RowCount("dropping output", repo.db.Model(&Exec{}).Where("id = ?", k.ID).
		UpdateColumns(map[string]any{
			"stdout_kept": 0, "stdout_inline": nil, "stderr_kept": 0, "stderr_inline": nil, "dropped_at": repo.tx.Now,
		}))
	return err
}

// dropEvents limits the events of a recording that one transaction drops.
const dropEvents = 500

// dropRecording drops the start of a session's recording, and returns how many bytes are left. After that the
// recording cannot be read.
func (repo Rows) dropRecording(k *KeptOutput) (left int64, err error) {
	_, err = storage.RowCount("dropping a recording",
		repo.db.Model(&Session{}).Where("sandbox_id = ? AND id = ? AND dropped_at = 0", k.SandboxID, k.ID).
			UpdateColumn("dropped_at", repo.tx.Now))
	if err != nil {
		return 0, err
	}
	var removed []int64
	oldest := repo.db.Model(&SessionEvent{}).Select("sequence").
		Where("sandbox_id = ? AND session_id = ?", k.SandboxID, k.ID).Order("sequence").Limit(dropEvents)
	err = repo.db.Raw("DELETE FROM session_events WHERE sandbox_id = ? AND session_id = ? AND sequence IN (?) "+
		"RETURNING length(data)", k.SandboxID, k.ID, oldest).Scan(&removed).Error
	if err != nil || len(removed) < dropEvents {
		return 0, storage.Error("dropping a recording", err)
	}
	left = k.Bytes
	for _, n := range removed {
		left -= n + sandbox.SessionEventCost
	}
	return max(left, 1), nil
}

// forgetKept stops counting the kept output of purged sandboxes, and marks their workspaces for deletion.
func (repo Rows) forgetKept(sandboxIDs []string) error {
	workspaces, err := storage.Find[KeptOutput](repo.db.Where("kind = ? AND id LIKE ? AND sandbox_id IN ?",
		keptExec, keptWorkspace+"%", sandboxIDs))
	for i := 0; i < len(workspaces) && err == nil; i++ {
		err = bucketobjects.In(repo.tx).MarkForDeletion(workspaces[i].workspaceObject(), repo.tx.Now)
	}
	if err != nil {
		return err
	}
	var sums []struct {
		KeptOutput
		Records int64
	}
	err = repo.db.Model(&KeptOutput{}).Select("lease_id, environment_id, sum(bytes) AS bytes, count(*) AS records").
		Where("sandbox_id IN ?", sandboxIDs).Group("lease_id, environment_id").Scan(&sums).Error
	if err != nil {
		return storage.Error("counting the output of purged sandboxes", err)
	}
	if _, err := storage.RowCount("no longer counting output",
		repo.db.Where("sandbox_id IN ?", sandboxIDs).Delete(&KeptOutput{})); err != nil {
		return err
	}
	for i := range sums {
		if err := repo.addKept(&sums[i].KeptOutput, -sums[i].Bytes, -sums[i].Records); err != nil {
			return err
		}
	}
	return nil
}
