package leasing_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestSettingsThatTheBackendRefusesChangeNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		before, err := w.engine.GetEnvironment(w.Context(), game)
		if err != nil {
			w.Fatal(err)
		}
		wanted := sandbox.PutEnvironment{
			ID:           game,
			Owner:        "test",
			SecretValues: map[string]sandbox.Secret{"token": "new"},
			EnvironmentSpec: sandbox.EnvironmentSpec{
				Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone, TTL: sandbox.Duration(time.Minute),
				Confinement: sandbox.Confinement{Runtime: "unknown"}},
		}
		refusal := sandbox.InvalidFields("environment "+game,
			[]sandbox.Field{{Name: "confinement.runtime", Problem: "there is none of that name"}})
		w.backend.Fail(fake.OpCheck, refusal)
		if _, err := w.engine.PutEnvironment(w.Context(), wanted); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("it was refused with %v", err)
		}
		after, err := w.engine.GetEnvironment(w.Context(), game)
		if err != nil {
			w.Fatal(err)
		}
		if after.TTL != before.TTL || after.Confinement.Runtime != "" || after.LastEventID != before.LastEventID ||
			len(after.Secrets) != 0 {
			t.Errorf("the environment is %+v, and was %+v", after, before)
		}
		if l := w.lease(annLease); l.TTL != before.TTL {
			t.Errorf("the lease has the ttl %s", l.TTL)
		}
		other := wanted
		other.ID = "another"
		if _, err := w.engine.PutEnvironment(w.Context(), other); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("a new one was refused with %v", err)
		}
		if _, err := w.engine.GetEnvironment(w.Context(), "another"); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("reading the new one returned %v", err)
		}
	})
}

// An environment whose creation and removal both fail is not forgotten: deleting it removes its remains. The error is
// not retryable, whatever failed first, because a repeated request cannot succeed before the deletion.
func TestAnEnvironmentThatCouldNotBeMadeIsKnownUntilNothingOfItIsLeft(t *testing.T) {
	for _, first := range []sandbox.Code{sandbox.Failed, sandbox.Unavailable} {
		t.Run(string(first), func(t *testing.T) {
			inWorld(t, func(w *world) {
				knownUntilNothingIsLeft(w, first)
			})
		})
	}
}

func knownUntilNothingIsLeft(w *world, first sandbox.Code) {
	put := sandbox.PutEnvironment{ID: game, Owner: "test", CreateOnly: true, EnvironmentSpec: sandbox.EnvironmentSpec{
		Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone}}
	w.backend.Fail(fake.OpProvision, sandbox.Errorf(first, "the disk is full").WithReason(sandbox.ReasonCreationFailed))
	w.backend.Fail(fake.OpDeprovision, sandbox.Errorf(sandbox.Unavailable, "the engine is away"))
	_, err := w.engine.PutEnvironment(w.Context(), put)
	if sandbox.CodeOf(err) != sandbox.Failed || sandbox.ReasonOf(err) != sandbox.ReasonCreationFailed ||
		!strings.Contains(err.Error(), "the disk is full") || !strings.Contains(err.Error(), "the engine is away") {
		w.Errorf("it failed as %q, %q: %v", sandbox.CodeOf(err), sandbox.ReasonOf(err), err)
	}
	if env, err := w.engine.GetEnvironment(w.Context(), game); err != nil || env.Status != sandbox.EnvironmentDeleting {
		w.Errorf("it is %q (%v)", env.Status, err)
	}
	w.backend.Fail(fake.OpProvision, nil)
	if _, err := w.engine.PutEnvironment(w.Context(), put); sandbox.CodeOf(err) != sandbox.Conflict ||
		!strings.Contains(err.Error(), "delete it again") {
		w.Errorf("created again over the remains: %v", err)
	}
	w.backend.Fail(fake.OpDeprovision, nil)
	if err := w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game}); err != nil {
		w.Errorf("deleting it: %v", err)
	}
	if env, err := w.engine.PutEnvironment(w.Context(), put); err != nil || env.Status != sandbox.EnvironmentOpen {
		w.Errorf("made anew it is %q (%v)", env.Status, err)
	}
}

// The removal of an environment continues after its caller has left.
func TestAnEnvironmentIsRemovedPastItsCaller(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		slow := make(chan struct{})
		w.backend.Fault(fake.OpDeprovision, func(ctx context.Context) error {
			select {
			case <-slow:
				return nil
			case <-ctx.Done():
				return sandbox.Errorf(sandbox.UnknownOutcome, "the request was cut off")
			}
		})
		ctx, leave := context.WithTimeout(w.Context(), time.Second)
		defer leave()
		if err := w.engine.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: game}); sandbox.CodeOf(err) != sandbox.Timeout {
			t.Errorf("the caller that left got %v", err)
		}
		close(slow)
		synctest.Wait()
		if env, err := w.engine.GetEnvironment(w.Context(), game); err == nil && env.Status != sandbox.EnvironmentDestroyed {
			t.Errorf("it is %s (%v)", env.Status, err)
		}
	})
}
