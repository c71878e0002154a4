package cloudflare_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/loop"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const scaleAccount = "0123456789abcdef0123456789abcdef"

// scale is a ledger with many environments on the local API, which enforces its limits. Workers and time are simulated,
// in a synctest bubble.
type scale struct {
	*testing.T
	api     *localapi.Server
	workers *simulated
	store   *ledger.Store
	shared  bool // all environments share a Worker

	sharing sync.Mutex // serializes the creation of environments that share a Worker
	site    cloudflare.Site

	engine *leasing.Service // of the current process
	end    func()
}

// inScale runs f on this number of environments, which share a Worker or have one each.
func inScale(t *testing.T, shared bool, environments int, f func(s *scale)) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	synctest.Test(t, func(t *testing.T) {
		s := &scale{T: t, api: localapi.New(localapi.Config{}), workers: newSimulated(), shared: shared, end: func() {}}
		var err error
		options := ledger.Options{Now: time.Now, Poll: time.Hour, NoListen: true}
		s.store, err = ledger.Open(t.Context(), "sqlite://"+path, options)
		s.must(err)
		s.start()
		began := time.Now()
		s.must(parallel.Each(10, s.names(environments), func(id *string) error {
			_, err := s.engine.PutEnvironment(t.Context(),
				sandbox.PutEnvironment{ID: *id, Owner: "test", EnvironmentSpec: scaleSpec()})
			return err
		}))
		load := s.api.Calls()
		t.Logf("%d environments were made in %s: at most %d calls in five minutes, %d refused", environments,
			time.Since(began).Round(time.Second), load.Most, load.Refused)
		s.wantNoneRefused()
		s.end()
		time.Sleep(72 * time.Hour) // usage is compared for whole days after the day of creation
		s.start()
		f(s)
		s.end()
		s.must(s.store.Close())
	})
}

func (s *scale) names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("game-%d", i)
	}
	return all
}

func scaleSpec() sandbox.EnvironmentSpec {
	never := sandbox.Duration(0)
	lite, _ := sandbox.ResourcesOf("lite")
	return sandbox.EnvironmentSpec{
		Type: sandbox.TypeCatan, Backend: sandbox.Cloudflare, Resources: lite, Network: sandbox.NetworkNone,
		Image:      "registry.cloudflare.com/" + scaleAccount + "/game@sha256:" + strings.Repeat("0a", 32),
		SleepAfter: &never,
	}
}

// start runs a new process, with empty caches.
func (s *scale) start() {
	s.Helper()
	s.end()
	d, err := deploy.New(deploy.Config{
		AccountID: scaleAccount, Token: "the token", BaseURL: "http://api/client/v4",
		HTTP: &http.Client{Transport: inProcess{s.api}},
	})
	s.must(err)
	x, err := cloudflare.New(cloudflare.Config{
		Deployer: d, MasterKey: "the key of keys", HTTP: &http.Client{Transport: s.workers},
	})
	s.must(err)
	s.engine, err = leasing.New(leasing.Config{
		Store: s.store, Executors: []driver.Executor{uploader{x, d, s}}, Version: "test",
	})
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = loop.New(s.engine, loop.Config{Poll: time.Minute}).Run(ctx) // it ends with ctx
	}()
	s.end = func() {
		s.end = func() {}
		cancel()
		<-done
		s.must(errors.Join(s.engine.Close(), x.Close(), d.Close()))
	}
	synctest.Wait()
}

// uploader uploads its own Worker, so that the built one is not needed, with an image that needs no preparation.
type uploader struct {
	*cloudflare.Executor
	deployer *deploy.Deployer
	scale    *scale
}

func (u uploader) Check(context.Context, driver.EnvironmentRef, sandbox.EnvironmentSpec) error {
	return nil
}

func (u uploader) Provision(ctx context.Context, ref driver.EnvironmentRef, spec sandbox.EnvironmentSpec) error {
	d := cloudflare.Deployment{
		Name: cloudflare.DeploymentName(ref.LedgerID, ref.EnvironmentID), Script: []byte("export default {}"),
		Image: spec.Image, Resources: spec.Resources, MaxInstances: cloudflare.DefaultMaxInstances, SigningKey: "a key",
	}
	if !u.scale.shared {
		d.Variables = map[string]string{"IMAGE": spec.Image, "IMAGE_PREPARED": spec.Image}
		_, err := u.deployer.Deploy(ctx, d)
		return err
	}
	u.scale.sharing.Lock()
	defer u.scale.sharing.Unlock()
	d.Name, d.Policy = cloudflare.SharedName(ref.LedgerID), cloudflare.PolicyDurableObject
	d.Images = map[string]string{cloudflare.ImageName(d.Image): d.Image}
	if u.scale.site.URL == "" {
		site, err := u.deployer.Deploy(ctx, d)
		if err != nil {
			return err
		}
		u.scale.site = site
	}
	w, err := cloudflare.NewWorker(cloudflare.WorkerConfig{
		URL: u.scale.site.URL, Key: d.SigningKey, HTTP: &http.Client{Transport: u.scale.workers},
	})
	if err != nil {
		return err
	}
	_, err = w.PutEnvironment(ctx, ref, spec.Image, d.Image)
	return errors.Join(err, w.Close())
}

func (s *scale) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scale) wantNoneRefused() {
	s.Helper()
	if calls, queries := s.api.Calls(), s.api.Queries(); calls.Refused+queries.Refused > 0 {
		s.Errorf("%d calls and %d queries were refused", calls.Refused, queries.Refused)
	}
}

// pass lets time pass, and returns the maximum numbers of calls and queries in five minutes of it.
func (s *scale) pass(d time.Duration) (calls, queries int) {
	s.Helper()
	s.api.ForgetCalls()
	time.Sleep(d)
	synctest.Wait()
	s.wantNoneRefused()
	return s.api.Calls().Most, s.api.Queries().Most
}

// acquire acquires each leases in each environment.
func (s *scale) acquire(environments, each, from int) {
	s.Helper()
	type one struct{ environment, agent string }
	var all []one
	for i := range each {
		for _, id := range s.names(environments) {
			all = append(all, one{id, fmt.Sprintf("did:plc:agent%d", from+i)})
		}
	}
	s.must(parallel.Each(32, all, func(o *one) error {
		_, err := s.engine.Acquire(s.Context(),
			sandbox.Acquire{EnvironmentID: o.environment, AgentDID: o.agent, Owner: "test"})
		return err
	}))
}

func (s *scale) leases() (all []sandbox.Lease) {
	s.Helper()
	f := sandbox.LeaseFilter{Status: sandbox.LeaseActive}
	for {
		page, err := s.engine.ListLeases(s.Context(), f)
		s.must(err)
		all = append(all, page...)
		if len(page) < sandbox.MaxPage {
			return all
		}
		f.After = page[len(page)-1].ID
	}
}

// TestTheAPIIsAskedAsSeldomByManyLeasesAsByFew: no call is refused, idle or busy, with restarted processes. An idle
// reconciler's calls do not grow with environments or sandboxes.
func TestTheAPIIsAskedAsSeldomByManyLeasesAsByFew(t *testing.T) {
	t.Parallel()
	type size struct {
		shared             bool
		environments, each int
	}
	sizes := []size{{false, 2, 1}, {false, 40, 1}, {true, 40, 1}}
	if os.Getenv("SANDBOX_TEST_LONG") != "" {
		sizes = []size{{false, 2, 1}, {false, 100, 20}, {true, 100, 20}}
	}
	var idle []int
	for _, of := range sizes {
		inScale(t, of.shared, of.environments, func(s *scale) {
			s.acquire(of.environments, of.each, 0)
			s.wantNoneRefused()
			s.start()
			s.workers.forget()
			calls, queries := s.pass(65 * time.Minute)
			lists := s.workers.forget()["list"]
			t.Logf("%d idle leases in %d environments, shared %t: at most %d calls and %d queries in five minutes, "+
				"and %d lists of sandboxes in 65", of.environments*of.each, of.environments, of.shared, calls, queries, lists)
			idle = append(idle, calls+queries)
			if most := 600; of.shared && lists > most { // one every 10 s, and one for each pass of the reconciler
				t.Errorf("the sandboxes of one Worker are listed %d times, want at most %d", lists, most)
			}
			if queries != 1 {
				t.Errorf("usage is compared by %d queries, want 1", queries)
			}
			s.busy(of.environments, of.each)
		})
	}
	if slices.Max(idle) > slices.Min(idle)+1 || slices.Max(idle) > 8 { // lists and comparisons may coincide
		t.Errorf("idle processes make %v calls in five minutes: want as many for many as for few, at most 8", idle)
	}
}

// TestAnIdleReconcilerAsksNoSandbox: a request to a Durable Object keeps it in memory for 10 s, and an object that is
// always in memory costs twice as much as the smallest container. The list has the usage of sandboxes, which their
// alarms have read.
func TestAnIdleReconcilerAsksNoSandbox(t *testing.T) {
	t.Parallel()
	const environments = 2
	inScale(t, false, environments, func(s *scale) {
		s.acquire(environments, 2, 0)
		s.pass(10 * time.Minute)
		s.workers.forget()
		s.pass(time.Hour)
		asked := s.workers.forget()
		if asked["list"] < 60*environments {
			t.Errorf("in an hour the sandboxes were listed %d times, want more", asked["list"])
		}
		delete(asked, "list")
		delete(asked, "who it is")
		if len(asked) > 0 {
			t.Errorf("sandboxes got the requests %v", asked)
		}
		h, err := s.engine.LeaseUsageHistory(s.Context(),
			sandbox.UsageHistoryQuery{LeaseRef: sandbox.LeaseRef{ID: sandbox.LeaseID("did:plc:agent0", "game-0")}})
		s.must(err)
		if n := len(h.Samples); n != 14 || h.Samples[n-1].MemoryBytes != 1<<20 || h.Samples[n-1].CPUTime == 0 {
			t.Errorf("its history has %d samples, %+v", n, h.Samples)
		}
	})
}

// busy ends and acquires all leases once, renews and crashes some meanwhile, and restarts the process.
func (s *scale) busy(environments, each int) {
	s.Helper()
	s.api.ForgetCalls()
	s.start()
	before := s.leases()
	s.must(parallel.Each(32, before, func(l *sandbox.Lease) error {
		_, err := s.engine.Renew(s.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: l.ID}})
		return err
	}))
	s.workers.crash(len(before) / 10)
	time.Sleep(time.Minute)
	s.must(parallel.Each(32, before, func(l *sandbox.Lease) error {
		_, err := s.engine.Release(s.Context(), sandbox.LeaseRef{ID: l.ID})
		return err
	}))
	s.start()
	s.acquire(environments, each, each)
	time.Sleep(time.Minute)
	synctest.Wait()
	load := s.api.Calls()
	s.Logf("%d leases were renewed, ended and acquired anew, with 2 restarts: "+
		"at most %d calls in five minutes, %d refused", len(before), load.Most, load.Refused)
	s.wantNoneRefused()
	if got, want := s.workers.count(), environments*each; got != want {
		s.Errorf("there are %d sandboxes, want %d", got, want)
	}
	if load.Most > 50 {
		s.Errorf("a busy reconciler makes %d calls in five minutes, want at most 50", load.Most)
	}
}
