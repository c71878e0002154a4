package ledger

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An open store shows that its process lives: on SQLite by a lock on a file beside the ledger, on PostgreSQL by an
// advisory lock of the session that listens for commits. Whatever ends the process ends that lock, and nothing else
// does on SQLite; a session may also break under a living process, which then goes on to extend its claims.

// Process names this opening of the ledger, "" where nothing shows whether it lives. Claims begin with it.
func (s *Store) Process() string { return s.process }

// NewClaim returns a claim that no other process makes.
func (s *Store) NewClaim(ids sandbox.IDs) string {
	claim := ids(sandbox.LedgerIDLength)
	if s.process != "" {
		claim = s.process + claimSeparator + claim
	}
	return claim
}

const claimSeparator = "-"

// FreeClaims ends the claims of processes that have died, and returns how many. It takes none of a process that
// lives: what was extended since the first look stays.
func (s *Store) FreeClaims(ctx context.Context) (freed int64, err error) {
	if s.process == "" {
		return 0, nil
	}
	var processes []string
	var seen Time
	err = s.Read(ctx, func(tx *Tx) (err error) {
		processes, seen, err = tx.claimants()
		return err
	})
	if err != nil {
		return 0, err
	}
	processes = slices.DeleteFunc(processes, func(p string) bool { return p == s.process })
	dead, forget, err := s.db.ended(ctx, processes)
	if err != nil {
		return 0, err
	}
	defer forget()
	if !slices.ContainsFunc(dead, func(p string) bool { return slices.Contains(processes, p) }) {
		return 0, nil
	}
	err = s.Write(ctx, func(tx *Tx) error {
		freed = 0
		for _, p := range dead {
			n, err := rowCount("freeing claims", tx.db.Model(&Sandbox{}).
				Where("phase <> 'gone' AND claimed_until > ? AND claimed_until <= ? AND substr(claim, 1, ?) = ?", tx.Now, seen, len(p)+1, p+claimSeparator).
				Update("claimed_until", tx.Now))
			if err != nil {
				return err
			}
			freed += n
		}
		return nil
	})
	return freed, err
}

// claimants returns the processes that have claims, and when the last of these claims ends.
func (tx *Tx) claimants() (processes []string, until Time, err error) {
	var rows []Sandbox
	err = tx.db.Select("claim", "claimed_until").Where("phase <> 'gone' AND claimed_until > ?", tx.Now).Find(&rows).Error
	if err != nil {
		return nil, 0, unavailable("looking for claims", err)
	}
	for _, s := range rows {
		until = max(until, s.Claim.Until)
		if p, _, ok := strings.Cut(s.Claim.Token, claimSeparator); ok && !slices.Contains(processes, p) {
			processes = append(processes, p)
		}
	}
	return processes, until, nil
}

// confirmAfter is when a process is looked for again whose session is missing. A living one has extended its claims
// by then.
const confirmAfter = 2500 * time.Millisecond
