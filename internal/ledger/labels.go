package ledger

import (
	"encoding/json"

	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// labelled says where the labels of a table's rows are: a table on SQLite, a value on PostgreSQL.
type labelled struct{ sqlite, postgres string }

var (
	sandboxLabels     = labelled{"json_each(sandboxes.labels)", "(sandboxes.labels::jsonb)"}
	environmentLabels = labelled{"json_each(environments.spec, '$.labels')", "(environments.spec::jsonb -> 'labels')"}
)

// whereLabels restricts a query to rows with labels that match.
func (tx *Tx) whereLabels(q *gorm.DB, in labelled, s sandbox.LabelSelector) *gorm.DB {
	has, is := "EXISTS (SELECT 1 FROM "+in.sqlite+" WHERE key = ?)",
		"EXISTS (SELECT 1 FROM "+in.sqlite+" WHERE key = ? AND value = ?)"
	if tx.db.Name() == "postgres" {
		has, is = in.postgres+" ->> ? IS NOT NULL", in.postgres+" ->> ? = ?"
	}
	for _, m := range s.Matches() {
		if m.Value == nil {
			q = q.Where(has, m.Key)
		} else {
			q = q.Where(is, m.Key, *m.Value)
		}
	}
	return q
}

// Labels are the labels of all leases, and of the environments that pay for warm pools.
type Labels struct{ leases, environments map[string]map[string]string }

// Of returns the labels of a lease in its current generation, or those of the environment if lease is "".
func (l Labels) Of(lease, environment string) map[string]string {
	if lease == "" {
		return l.environments[environment]
	}
	return l.leases[lease]
}

// Labels returns the labels of all leases and environments, also of purged ones.
func (tx *Tx) Labels() (Labels, error) {
	l := Labels{make(map[string]map[string]string), make(map[string]map[string]string)}
	var rows []struct{ ID, Labels string }
	err := tx.db.Raw(`SELECT leases.id, COALESCE(sandboxes.labels, retired_sandboxes.labels, '{}') AS labels FROM leases
		LEFT JOIN sandboxes ON sandboxes.id = leases.sandbox_id
		LEFT JOIN retired_sandboxes ON retired_sandboxes.id = leases.sandbox_id`).Scan(&rows).Error
	if err != nil {
		return l, storage.Error("reading labels", err)
	}
	for _, row := range rows {
		if row.Labels == "{}" {
			continue
		}
		labels := make(map[string]string)
		if err := json.Unmarshal([]byte(row.Labels), &labels); err != nil {
			return l, sandbox.Errorf(sandbox.Internal, "reading the labels of lease %s: %w", row.ID, err)
		}
		l.leases[row.ID] = labels
	}
	environments, err := storage.Find[Environment](tx.db.Select("id", "spec"))
	for i := range environments {
		l.environments[environments[i].ID] = environments[i].Spec.Labels
	}
	return l, err
}
