package provider_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// team is an environment with n leases.
func team(w *providertest.World, n int) string {
	return environment(w) + fmt.Sprintf(`
resource "sandbox_lease" "team" {
  count          = %d
  agent_did      = "did:plc:member-${count.index}"
  environment_id = sandbox_environment.game.name
}
`, n)
}

// A killed apply can be run again, whenever it was killed. The next run finds what exists and creates nothing twice.
func TestAccAKilledApplyIsRunAgain(t *testing.T) {
	t.Parallel()
	leases, kills, least := 12, 4, 3
	if os.Getenv("SANDBOX_TEST_LONG") != "" {
		leases, kills, least = 40, 12, 8
	}
	providertest.OverBothServices(t, func(t *testing.T, w *providertest.World, configuration string) {
		tf, leasing := terraform(t, configuration+team(w, leases)), w.Service()
		midway := 0
		for i := range kills {
			before := progress(t, w, leasing)
			// The first kill comes once the environment exists, later kills once there are more leases than before.
			// None waits for the last lease, because the apply then ends by itself.
			moment, delay := before+1, time.Duration(rand.IntN(1000))*time.Millisecond
			if i > 0 {
				moment = max(moment, min(moment+rand.IntN(leases/kills), leases-1))
			}
			var began time.Time
			due := func() bool {
				now := progress(t, w, leasing)
				if now > before && began.IsZero() {
					began = time.Now()
				}
				return now >= moment || !began.IsZero() && time.Since(began) >= delay
			}
			killed, printed := tf.KillWhen(providertest.Kill(i%2), due,
				"apply", "-auto-approve", "-input=false", "-no-color", "-parallelism=2")
			if strings.Contains(printed, "Error:") {
				t.Fatalf("apply %d, which ended by itself: %t:\n%s", i, !killed, printed)
			}
			if killed && !began.IsZero() {
				midway++
			}
			restoreState(t, tf)
		}
		t.Logf("%d of %d kills met an apply that had made something", midway, kills)
		if midway < least {
			t.Errorf("want %d such kills", least)
		}
		tf.Run("apply", "-auto-approve", "-input=false")
		if p := tf.Plan(); len(p.Changes) != 0 {
			t.Errorf("after that the plan is %v", p.Changes)
		}
		all, err := leasing.ListLeases(t.Context(), sandbox.LeaseFilter{EnvironmentID: w.Name})
		w.Must(err)
		if len(all) != leases || len(w.Containers(w.Name)) != leases {
			t.Errorf("there are %d leases and %d containers, want %d", len(all), len(w.Containers(w.Name)), leases)
		}
		for _, l := range all {
			if l.Status != sandbox.LeaseActive || l.Generation != 1 {
				t.Errorf("lease %s is %s in generation %d", l.ID, l.Status, l.Generation)
			}
		}
		tf.Run("destroy", "-auto-approve", "-input=false")
		if files, _ := filepath.Glob(filepath.Join(tf.Dir, ".terraform", "sandbox", "creating", "*", "*")); len(files) > 0 {
			t.Errorf("the journal still has %v", files)
		}
	})
}

// restoreState does what the guide says if Terraform was killed while it wrote its state. Terraform writes the file in
// place. The backup is the state before that run.
func restoreState(t *testing.T, tf *providertest.CLI) {
	t.Helper()
	file := filepath.Join(tf.Dir, "terraform.tfstate")
	state, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && json.Valid(state) {
		return
	}
	t.Logf("Terraform left %d bytes of its state: %v", len(state), err)
	backup, err := os.ReadFile(file + ".backup")
	switch {
	case errors.Is(err, fs.ErrNotExist): // it was the first run
		err = os.Remove(file)
	case err == nil:
		err = os.WriteFile(file, backup, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// progress counts what the ledger has: -1 for nothing, 0 for the environment, then the number of leases.
func progress(t *testing.T, w *providertest.World, s service.Service) int {
	t.Helper()
	all, err := s.ListLeases(t.Context(), sandbox.LeaseFilter{EnvironmentID: w.Name})
	w.Must(err)
	if len(all) > 0 {
		return len(all)
	}
	if _, err := s.GetEnvironment(t.Context(), w.Name); err != nil {
		return -1
	}
	return 0
}

// A destroy after a kill ends the leases that are in no state.
func TestAccADestroyAfterAKillFindsWhatWasMade(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tf, leasing := terraform(t, w.Embedded()+team(w, 12)), w.Service()
	tf.Run("apply", "-auto-approve", "-input=false", "-target=sandbox_environment.game")
	due := func() bool { return progress(t, w, leasing) >= 2 }
	killed, printed := tf.KillWhen(providertest.Both, due, "apply", "-auto-approve", "-input=false", "-parallelism=2")
	if !killed {
		t.Fatalf("the apply was over before it could be killed:\n%s", printed)
	}
	restoreState(t, tf)
	tf.Run("destroy", "-auto-approve", "-input=false")
	env, err := leasing.GetEnvironment(t.Context(), w.Name)
	w.Must(err)
	if env.Status != sandbox.EnvironmentDestroyed || len(w.Containers(w.Name)) != 0 {
		t.Errorf("the environment is %s, and has %d containers", env.Status, len(w.Containers(w.Name)))
	}
}

// A lease of another state or an orchestrator is not taken over, not even after the first apply was killed.
func TestAccALeaseOfAnotherOwnerIsNotTakenOver(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	first := terraform(t, w.Embedded()+environment(w)+lease("shared", ""))
	first.Run("apply", "-auto-approve", "-input=false")
	other := strings.Replace(lease("shared", ""), "sandbox_environment.game.name", fmt.Sprintf("%q", w.Name), 1)
	second := terraform(t, w.Embedded()+other)
	for range 2 { // again, as after a kill
		if said := second.Fail("apply", "-auto-approve", "-input=false", "-no-color"); !strings.Contains(said,
			"terraform import") {
			t.Errorf("the second state's apply says\n%s", said)
		}
	}
	twice := strings.Replace(lease("shared", ""), `"sandbox_lease" "shared"`, `"sandbox_lease" "twice"`, 1)
	first.Write("twice.tf", twice)
	if said := first.Fail("apply", "-auto-approve", "-input=false", "-no-color"); !strings.Contains(said,
		"terraform import") {
		t.Errorf("a second resource for the lease says\n%s", said)
	}
	if err := os.Remove(filepath.Join(first.Dir, "twice.tf")); err != nil {
		t.Fatal(err)
	}
	if p := first.Plan(); len(p.Changes) != 0 {
		t.Errorf("the first state's plan is %v", p.Changes)
	}
	first.Run("destroy", "-auto-approve", "-input=false")
}
