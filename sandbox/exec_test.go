package sandbox_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestASandboxHasAUserOfItsOwn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching("[a-z2-7]{26}").Draw(t, "sandbox")
		narrow := rapid.Bool().Draw(t, "narrow")
		low, high := 0x70000000, 0x7FFFFFFE
		if narrow {
			low, high = 20_000, 59_998
		}
		i := sandbox.Confinement{}.Identity(id, narrow)
		if i.UID < low || i.UID > high || i.UID%2 != 0 || i.GID != i.UID || !i.Own {
			t.Fatalf("sandbox %s runs as %+v, want an even id of its own from %d to %d", id, i, low, high)
		}
		if again := (sandbox.Confinement{}).Identity(id, narrow); again != i {
			t.Fatalf("sandbox %s runs as %+v and as %+v", id, i, again)
		}
	})
}

// All 2^27 pairs of ids are equally likely: among 2,000 sandboxes, 0.015 pairs share one.
func TestFewSandboxesShareAUser(t *testing.T) {
	t.Parallel()
	seen, shared := map[int]bool{}, 0
	for range 2000 {
		uid := sandbox.Confinement{}.Identity(sandbox.RandomIDs(sandbox.SandboxIDLength), false).UID
		if seen[uid] {
			shared++
		}
		seen[uid] = true
	}
	if shared > 2 {
		t.Errorf("%d of 2000 sandboxes share a user", shared)
	}
}

func TestAFixedUserIsSharedAndKept(t *testing.T) {
	t.Parallel()
	for _, narrow := range []bool{false, true} {
		if got, want := (sandbox.Confinement{User: "2000:3000"}).Identity("any",
			narrow), (sandbox.Identity{UID: 2000, GID: 3000}); got != want {
			t.Errorf("the user is %+v, want %+v", got, want)
		}
	}
}
