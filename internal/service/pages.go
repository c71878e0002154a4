package service

import (
	"context"
	"iter"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// EachLease yields the leases of a filter, page by page, or an error, after which it ends. The filter's Limit is not
// used. Errors: those of ListLeases.
func EachLease(ctx context.Context, in Leases, f sandbox.LeaseFilter) iter.Seq2[sandbox.Lease, error] {
	return func(yield func(sandbox.Lease, error) bool) {
		for f.Limit = sandbox.MaxPage; ; {
			page, err := in.ListLeases(ctx, f)
			if err != nil {
				yield(sandbox.Lease{}, err)
				return
			}
			for _, l := range page {
				if !yield(l, nil) {
					return
				}
			}
			if len(page) < f.Limit {
				return
			}
			f.After = f.Next(page[len(page)-1])
		}
	}
}
