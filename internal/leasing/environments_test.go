package leasing_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

func TestSettingsThatTheBackendRefusesChangeNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment()
		w.acquire(ann)
		before, err := w.engine.GetEnvironment(w.Context(), game)
		if err != nil {
			w.Fatal(err)
		}
		wanted := sandbox.PutEnvironment{ID: game, Owner: "test", SecretValues: map[string]sandbox.Secret{"token": "new"}, EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone, TTL: sandbox.Duration(time.Minute),
			Confinement: sandbox.Confinement{Runtime: "unknown"}}}
		refusal := sandbox.InvalidFields("environment "+game, []sandbox.Field{{Name: "confinement.runtime", Problem: "there is none of that name"}})
		w.backend.Fail(fake.OpCheck, refusal)
		if _, err := w.engine.PutEnvironment(w.Context(), wanted); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("it was refused with %v", err)
		}
		after, err := w.engine.GetEnvironment(w.Context(), game)
		if err != nil {
			w.Fatal(err)
		}
		if after.TTL != before.TTL || after.Confinement.Runtime != "" || after.LastEventID != before.LastEventID || len(after.Secrets) != 0 {
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
			t.Errorf("of the new one there is %v", err)
		}
	})
}
