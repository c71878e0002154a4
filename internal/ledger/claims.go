package ledger

import (
	"context"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewClaim returns a globally unique claim.
func (s *Store) NewClaim(ids sandbox.IDs) string {
	claim := ids(sandbox.LedgerIDLength)
	if s.Process() != "" {
		claim = s.Process() + claimSeparator + claim
	}
	return claim
}

const claimSeparator = "-"

// FreeClaims ends the claims of dead processes, and returns their number. It takes none of a live process:
// claims that were extended since the first look stay.
func (s *Store) FreeClaims(ctx context.Context) (freed int64, err error) {
	if s.Process() == "" {
		return 0, nil
	}
	var processes []string
	var seen micro.Time
	err = s.Read(ctx, func(tx *Tx) (err error) {
		processes, seen, err = tx.claimants()
		return err
	})
	if err != nil {
		return 0, err
	}
	processes = slices.DeleteFunc(processes, func(p string) bool { return p == s.Process() })
	dead, forget, err := s.Ended(ctx, processes)
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
			n, err := storage.RowCount("freeing claims", tx.db.Model(&Sandbox{}).
				Where("phase <> 'gone' AND claimed_until > ? AND claimed_until <= ? AND substr(claim, 1, ?) = ?", tx.Now, seen,
					len(p)+1, p+claimSeparator).
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

// claimants returns the processes with claims, and the end of the last of these claims.
func (tx *Tx) claimants() (processes []string, until micro.Time, err error) {
	var rows []Sandbox
	err = tx.db.Select("claim", "claimed_until").Where("phase <> 'gone' AND claimed_until > ?", tx.Now).Find(&rows).Error
	if err != nil {
		return nil, 0, storage.Error("looking for claims", err)
	}
	for _, s := range rows {
		until = max(until, s.Claim.Until)
		if p, _, ok := strings.Cut(s.Claim.Token, claimSeparator); ok && !slices.Contains(processes, p) {
			processes = append(processes, p)
		}
	}
	return processes, until, nil
}
