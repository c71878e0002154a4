package deploy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// workersDev answers in place of every Worker at workers.dev, and counts.
type workersDev struct {
	mu    sync.Mutex // guards what follows
	asked int
	down  string // the host that does not answer
}

func (d *workersDev) RoundTrip(r *http.Request) (*http.Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	status := http.StatusOK
	if r.URL.Host == d.down {
		status = http.StatusInternalServerError
	}
	return &http.Response{
		StatusCode: status,
		Body:       io.NopCloser(strings.NewReader(`{"sandboxes":[],"more":false}`)),
		Request:    r,
	}, nil
}

// idle polls for five minutes like the loop of an idle reconciler that has polled before, and returns the number of API
// calls.
func (w *world) idle(environments int) int {
	w.Helper()
	const ledgerID = "ledgerofdeploy22"
	for i := range environments {
		d := wanted()
		d.Name = cloudflare.DeploymentName(ledgerID, fmt.Sprintf("idle-%d", i))
		w.deploy(d)
	}
	now, line := time.Now(), &workersDev{}
	clock := func() time.Time { return now }
	x, err := cloudflare.New(cloudflare.Config{
		Deployer:  w.newDeployer(deploy.Config{Now: clock}),
		MasterKey: "the key of keys",
		HTTP:      &http.Client{Transport: line},
		Now:       clock,
	})
	w.must(err)
	look := func() {
		w.Helper()
		if _, err := x.List(w.Context(), ledgerID); err != nil {
			w.Fatal(err)
		}
	}
	look()
	w.forget(nil)
	line.asked = 0
	for range 30 { // the watch polls every 10 s, and the resync runs every 30 s
		now = now.Add(cloudflare.DefaultPoll)
		look()
	}
	for range 10 {
		look()
	}
	if line.asked != 40*environments {
		w.Errorf("Workers got %d requests, want %d", line.asked, 40*environments)
	}
	return w.requests()
}

// TestTheSubdomainIsAskedForOnce: concurrent callers share one call if the subdomain is not cached or has expired.
func TestTheSubdomainIsAskedForOnce(t *testing.T) {
	t.Parallel()
	const many = 20
	w := newWorld(t)
	var looking, answered sync.WaitGroup
	looking.Add(many)
	w.forget(func(int, *http.Request) localapi.Fault {
		looking.Wait()
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // no event says that all wait for the first answer
		return localapi.None
	})
	for range many {
		answered.Go(func() {
			looking.Done()
			if _, err := w.deployer.Account(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	answered.Wait()
	if n := w.requests(); n != 1 {
		t.Errorf("%d concurrent requests for the subdomain made %d calls, want 1", many, n)
	}
}

// TestACallerThatGivesUpDoesNotWaitForTheSubdomain: other callers can still ask after it gave up.
func TestACallerThatGivesUpDoesNotWaitForTheSubdomain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, held := make(chan struct{}), make(chan struct{})
	w.forget(func(n int, _ *http.Request) localapi.Fault {
		if n == 0 {
			close(first)
			<-held
		}
		return localapi.None
	})
	gone, give := context.WithCancel(t.Context())
	asker := make(chan error, 1)
	go func() { _, err := w.deployer.Account(gone); asker <- err }()
	<-first
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.deployer.Account(short); sandbox.CodeOf(err) != sandbox.Timeout {
		t.Errorf("a caller that gives up waiting got %v, want a timeout", err)
	}
	give()
	if err := <-asker; sandbox.CodeOf(err) != sandbox.Timeout {
		t.Errorf("the caller that asked and gave up got %v, want a timeout", err)
	}
	close(held)
	if _, err := w.deployer.Account(t.Context()); err != nil {
		t.Errorf("the next caller got %v", err)
	}
}

// TestAnIdleReconcilerAsksTheAPISeldom: an account may make 1,200 API calls in five minutes. Requests to Workers do not
// count.
func TestAnIdleReconcilerAsksTheAPISeldom(t *testing.T) {
	t.Parallel()
	for _, environments := range []int{2, 30} {
		n := newWorld(t).idle(environments)
		t.Logf("with %d idle environments the API is asked %d times in 5 minutes", environments, n)
		if n > 3 {
			t.Errorf("%d idle environments make %d API calls in 5 minutes, want at most 3", environments, n)
		}
	}
}

// TestAnEnvironmentIsFoundThatAnotherProcessMakes: cached answers of the API expire.
func TestAnEnvironmentIsFoundThatAnotherProcessMakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now, line := time.Now(), &workersDev{}
	clock := func() time.Time { return now }
	d := wanted()
	w.deploy(d)
	x, err := cloudflare.New(cloudflare.Config{
		Deployer:  w.newDeployer(deploy.Config{Now: clock}),
		MasterKey: "the key of keys",
		HTTP:      &http.Client{Transport: line},
		Now:       clock,
	})
	w.must(err)
	asked := func() int {
		before := line.asked
		_, _ = x.List(t.Context(), "ledgerofdeploy22") // one Worker may be down
		return line.asked - before
	}
	if n := asked(); n != 1 {
		t.Errorf("with one Worker, %d got requests", n)
	}
	another := wanted()
	another.Name = cloudflare.DeploymentName("ledgerofdeploy22", "another")
	w.deploy(another)
	now = now.Add(10 * time.Minute)
	if n := asked(); n != 2 {
		t.Errorf("with two Workers, %d got requests", n)
	}
	w.must(w.deployer.Delete(t.Context(), d.Name)) // by another process
	line.down = d.Name + ".local.workers.dev"
	asked()
	now = now.Add(2 * time.Minute)
	if list, err := x.List(t.Context(), "ledgerofdeploy22"); err != nil {
		t.Errorf("with one Worker deleted the list is %v: %v", list, err)
	}
	if sandbox.CodeOf(err) != "" {
		t.Error(err)
	}
}
