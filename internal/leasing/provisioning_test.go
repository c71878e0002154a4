package leasing_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// creating is the request that the tests of this file make.
func creating(change ...func(p *sandbox.PutEnvironment)) sandbox.PutEnvironment {
	p := sandbox.PutEnvironment{ID: game, Owner: "test", SecretValues: map[string]sandbox.Secret{"token": "s3cret"},
		EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeRPG, Image: "player", Network: sandbox.NetworkRestricted}}
	for _, c := range change {
		c(&p)
	}
	return p
}

// begin makes an engine create the environment and returns a channel for the result.
func begin(ctx context.Context, e *leasing.Service, p sandbox.PutEnvironment) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := e.PutEnvironment(ctx, p)
		done <- err
	}()
	return done
}

// firstProvision makes the backend's first Provision leave something behind, and wait until it is released or its
// context ends. Then that Provision fails with the error of the release. Later ones pass.
func (w *world) firstProvision() (release chan<- error) {
	released, first := make(chan error, 1), true
	w.backend.Fault(fake.OpProvision, func(ctx context.Context) error {
		if !first {
			return nil
		}
		first = false
		w.plantGateway()
		select {
		case err := <-released:
			return err
		case <-ctx.Done():
			return sandbox.Errorf(sandbox.Unavailable, "create container: %w", ctx.Err())
		}
	})
	return released
}

// plantGateway creates what an interrupted Provision leaves behind.
func (w *world) plantGateway() {
	w.backend.PlantDependent(driver.Dependent{Kind: driver.DependentGateway, Name: "gateway",
		Handle: driver.Handle{LedgerID: w.store.ID(), EnvironmentID: game, Instance: "engine-1"}})
}

func (w *world) status() sandbox.EnvironmentStatus {
	w.Helper()
	env, err := w.engine.GetEnvironment(w.Context(), game)
	if err != nil {
		w.Fatal(err)
	}
	return env.Status
}

// TestACallerThatGivesUpTakesNoEnvironmentFromAnother makes one client create an environment and give up after a time.
// Another client asks for the same environment, leases and works in it.
func TestACallerThatGivesUpTakesNoEnvironmentFromAnother(t *testing.T) {
	broken := sandbox.Errorf(sandbox.Failed, "the engine has no room")
	round := 0
	for _, createOnly := range []bool{false, true} {
		for name, order := range map[string][]string{
			"BothWaitAndTheFirstGivesUp":       {"second", "give up", "release"},
			"TheFirstGivesUpBeforeTheSecond":   {"give up", "second", "release"},
			"TheFirstGivesUpAndItsCallAnswers": {"give up", "release", "second"},
			"TheFirstGivesUpAtTheVeryEnd":      {"second", "release", "give up"},
		} {
			for outcome, err := range map[string]error{"Succeeds": nil, "Fails": broken} {
				round++
				t.Run(fmt.Sprintf("%s/CreateOnly=%t/%s", name, createOnly, outcome), func(t *testing.T) {
					inWorld(t, func(w *world) { takeNothing(w, createOnly, order, err) })
				})
			}
		}
	}
	if round < 12 {
		t.Errorf("%d rounds", round)
	}
}

func takeNothing(w *world, createOnly bool, order []string, outcome error) {
	w.startLoop()
	replica := w.newEngine(w.store)
	defer func() { _ = replica.Close() }()
	release := w.firstProvision()
	impatient, giveUp := context.WithCancel(w.Context())
	defer giveUp()
	first := begin(impatient, replica, creating(func(p *sandbox.PutEnvironment) { p.CreateOnly = createOnly }))
	later(time.Second)
	var second <-chan error
	for _, step := range order {
		switch step {
		case "second":
			second = begin(w.Context(), w.engine, creating())
		case "give up":
			giveUp()
		case "release":
			release <- outcome
		}
		later(time.Second)
	}
	w.Logf("the first caller: %v", <-first)
	if err := <-second; err != nil {
		w.Fatalf("the second caller: %v", err)
	}
	if s := w.status(); s != sandbox.EnvironmentOpen {
		w.Errorf("the second caller's environment is %s", s)
	}
	l := w.acquire(ann)
	later(5 * time.Minute)
	w.want(w.lease(annLease), sandbox.LeaseActive, "")
	if s := w.status(); s != sandbox.EnvironmentOpen {
		w.Errorf("the environment of a living lease is %s", s)
	}
	if secrets := w.backend.Secrets(l.SandboxID); len(secrets) != 1 {
		w.Errorf("the sandbox has %d secrets, want 1", len(secrets))
	}
	if w.backend.Environments() != 1 {
		w.Errorf("%d environments are provisioned", w.backend.Environments())
	}
	again := begin(w.Context(), replica, creating()) // the first caller retries
	if err := <-again; err != nil {
		w.Errorf("the first caller's next try: %v", err)
	}
	w.want(w.lease(annLease), sandbox.LeaseActive, "")
}

// TestACreationThatBreaksOffLeavesNothing: no other caller asks for the environment, and the ledger never had a
// sandbox.
func TestACreationThatBreaksOffLeavesNothing(t *testing.T) {
	nothing := func(w *world) {
		w.Helper()
		if s := w.status(); s != sandbox.EnvironmentDestroyed {
			w.Errorf("it is %s", s)
		}
		if left := w.backend.Objects(); len(left) != 0 || w.backend.Environments() != 0 {
			w.Errorf("left behind: %v", left)
		}
	}
	t.Run("ItsCallerLeaves", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.startLoop()
			release := w.firstProvision()
			ctx, leave := context.WithCancel(w.Context())
			done := begin(ctx, w.engine, creating(func(p *sandbox.PutEnvironment) { p.CreateOnly = true }))
			later(time.Second)
			leave()
			if err := <-done; sandbox.CodeOf(err) != sandbox.Timeout {
				t.Errorf("it ended with %v", err)
			}
			release <- nil
			later(31 * time.Second)
			nothing(w)
		})
	})
	t.Run("ItsCallerLeavesAndComesBack", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.startLoop()
			release := w.firstProvision()
			ctx, leave := context.WithCancel(w.Context())
			only := creating(func(p *sandbox.PutEnvironment) { p.CreateOnly = true })
			done := begin(ctx, w.engine, only)
			later(time.Second)
			leave()
			if err := <-done; err == nil {
				t.Error("the call of a caller that left succeeded")
			}
			release <- nil
			later(time.Second)
			if err := <-begin(w.Context(), w.engine, only); err != nil {
				t.Errorf("its next try: %v", err)
			}
			later(time.Hour)
			if s := w.status(); s != sandbox.EnvironmentOpen || w.backend.Environments() != 1 {
				t.Errorf("it is %s", s)
			}
		})
	})
	t.Run("ItsProcessDies", func(t *testing.T) {
		inWorld(t, func(w *world) {
			release := w.firstProvision()
			dying := w.newEngine(w.store)
			done := begin(context.Background(), dying, creating())
			later(time.Second)
			if err := dying.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err == nil {
				t.Error("the call of a caller that left succeeded")
			}
			release <- nil
			w.startLoop()
			later(45 * time.Second) // a claim and a resync
			nothing(w)
		})
	})
	t.Run("ItsRemovalFailsForAWhile", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.startLoop()
			w.firstProvision() <- sandbox.Errorf(sandbox.Failed, "the disk is full")
			w.backend.Fail(fake.OpDeprovision, away)
			if err := <-begin(w.Context(), w.engine, creating()); sandbox.CodeOf(err) != sandbox.Failed {
				t.Errorf("it ended with %v", err)
			}
			later(10 * time.Minute)
			if s := w.status(); s != sandbox.EnvironmentDeleting {
				t.Errorf("it is %s", s)
			}
			w.backend.Fail(fake.OpDeprovision, nil)
			later(45 * time.Second)
			nothing(w)
		})
	})
	t.Run("ItsCallIsCarriedOutLate", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.startLoop()
			w.firstProvision() <- sandbox.Errorf(sandbox.UnknownOutcome, "the answer was lost")
			if err := <-begin(w.Context(), w.engine, creating()); sandbox.CodeOf(err) != sandbox.UnknownOutcome {
				t.Errorf("it ended with %v", err)
			}
			w.plantGateway()
			later(10 * time.Minute) // the grace, and two looks
			nothing(w)
		})
	})
}

func TestAnAcquireWaitsUntilItsEnvironmentIsMade(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		release := w.firstProvision()
		made := begin(w.Context(), w.engine, creating())
		later(time.Second)
		acquire := sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test", NoWait: true}
		if _, err := w.engine.Acquire(w.Context(), acquire); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("an acquire that does not wait: %v", err)
		}
		acquired := make(chan error, 1)
		acquire.NoWait = false
		go func() {
			_, err := w.engine.Acquire(w.Context(), acquire)
			acquired <- err
		}()
		later(20 * time.Second)
		if n := len(w.backend.Sandboxes()); n != 0 {
			t.Errorf("%d sandboxes were made before their environment was", n)
		}
		release <- nil
		if err := <-made; err != nil {
			t.Fatal(err)
		}
		if err := <-acquired; err != nil {
			t.Errorf("an acquire that waits: %v", err)
		}
	})
}

func TestAnAcquireSaysThatItsEnvironmentCouldNotBeMade(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		release := w.firstProvision()
		begin(w.Context(), w.engine, creating())
		later(time.Second)
		acquired := make(chan error, 1)
		go func() {
			_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
			acquired <- err
		}()
		later(time.Second)
		release <- sandbox.Errorf(sandbox.Failed, "the disk is full")
		if err := <-acquired; sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("an acquire in an environment that could not be made: %v", err)
		}
	})
}

// TestARemovalAndACreationOfOneEnvironmentDoNotMeet: the creation waits for the removal, which removes only the resources
// of earlier creations.
func TestARemovalAndACreationOfOneEnvironmentDoNotMeet(t *testing.T) {
	inWorld(t, func(w *world) {
		w.startLoop()
		w.environment()
		removing := make(chan struct{})
		w.backend.Fault(fake.OpDeprovision, func(context.Context) error { <-removing; return nil })
		deleted := make(chan error, 1)
		go func() {
			deleted <- w.engine.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game})
		}()
		later(time.Second)
		replica := w.newEngine(w.store)
		defer func() { _ = replica.Close() }()
		created := begin(w.Context(), replica, creating())
		later(30 * time.Second)
		close(removing)
		if err := <-deleted; err != nil {
			t.Fatal(err)
		}
		if err := <-created; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w.status() != sandbox.EnvironmentOpen || w.backend.Environments() != 1 {
			t.Errorf("it is %s, and %d are provisioned", w.status(), w.backend.Environments())
		}
	})
}
