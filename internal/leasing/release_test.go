package leasing_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A lease's end names the caller that released it, which may differ from the owner.
func TestAReleaseNamesItsCaller(t *testing.T) {
	for actor, want := range map[string]string{"token:operator": "released by token:operator", "": "released by test"} {
		t.Run(want, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.environment()
				w.acquire(ann)
				ctx := sandbox.WithActor(w.Context(), sandbox.Actor{Name: actor})
				l, err := w.engine.Release(ctx, sandbox.LeaseRef{ID: annLease})
				if err != nil || l.EndReason != want {
					t.Errorf("the lease of %s ended as %q (%v)", l.Owner, l.EndReason, err)
				}
			})
		})
	}
}
