package cloudflare_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// keyOfKeys is the master key of the Workers' signing keys.
const keyOfKeys = "the key of keys"

// manySandboxes puts the copies of this number of sandboxes into the database of a real Worker, which environments of a
// ledger share. Each has the status of a real sandbox.
func manySandboxes(t *testing.T, number int) (*cloudflaretest.Server, string) {
	t.Helper()
	derived := hmac.New(sha256.New, []byte(keyOfKeys))
	derived.Write([]byte("signing key of " + cloudflare.SharedName("ledgerofworker22")))
	server := cloudflaretest.Start(t, cloudflaretest.Config{
		Key: sandbox.Secret(hex.EncodeToString(derived.Sum(nil))), Append: burstScript,
	})
	w := &world{t, server, server.Worker()}
	h := w.spawn(cloudflare.Limits{})
	server.Query(fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO sandboxes (ledger, id, view) SELECT ledger, 'm' || printf('%%025d', i), view FROM sandboxes, n`, number-1))
	return server, h.LedgerID
}

// drops loses every 20th request or answer, and counts the requests.
type drops struct {
	http.RoundTripper
	asked atomic.Int64
}

func (d *drops) RoundTrip(r *http.Request) (*http.Response, error) {
	d.asked.Add(1)
	lost := rand.IntN(20) == 0     //nolint:gosec // which message is lost is no secret
	if lost && rand.IntN(2) == 0 { //nolint:gosec // as above
		return nil, fmt.Errorf("the request was lost")
	}
	answer, err := d.RoundTripper.RoundTrip(r)
	if lost && err == nil {
		_ = answer.Body.Close()
		return nil, fmt.Errorf("the answer was lost")
	}
	return answer, err
}

// TestNoChangeOfTenThousandSandboxesIsMissed: the real Worker lists the sandboxes, and meanwhile the Durable Objects of
// 500 of them, without containers, end their sandboxes. Every 20th message is lost: from the objects to D1, from the
// reconciler to the Worker, and their answers. The next list has what one list misses, and an object's alarm retries a
// failed write.
func TestNoChangeOfTenThousandSandboxesIsMissed(t *testing.T) {
	number, changes := 2000, 100
	if os.Getenv("SANDBOX_TEST_LONG") != "" {
		number, changes = 10_000, 500
	}
	server, ledgerID := manySandboxes(t, number-changes)
	b := &burst{&world{t, server, server.Worker()}, ledgerID}
	const together = 100
	for from := 0; from < changes; from += together {
		if failed := b.try("start", from, from+together); len(failed) > 0 {
			t.Fatalf("%d did not start, such as %s", len(failed), failed[0])
		}
	}
	lossy := &drops{RoundTripper: http.DefaultTransport}
	x, err := cloudflare.New(cloudflare.Config{
		Deployer:  oneWorker{server: server, name: cloudflare.SharedName(ledgerID)},
		MasterKey: keyOfKeys, HTTP: &http.Client{Transport: lossy}, Poll: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() }) // it only closes idle connections
	ctx, cancel := context.WithCancel(t.Context())
	var (
		mu    sync.Mutex
		seen  = map[string]bool{}
		ready = make(chan struct{})
		ended = make(chan error, 1)
	)
	go func() {
		var once sync.Once
		for ctx.Err() == nil { // a reconciler also watches again
			err := x.Watch(ctx, ledgerID, func() { once.Do(func() { close(ready) }) }, func(id string) {
				mu.Lock()
				defer mu.Unlock()
				seen[id] = true
			})
			if ctx.Err() == nil && sandbox.CodeOf(err) != sandbox.Unavailable {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatalf("the watch has ended: %v", err)
	}
	began, asked := time.Now(), lossy.asked.Load()
	b.fault("lose=5&alone=1") // each write is a separate message
	late := 0
	for from := 0; from < changes; from += together {
		late += len(b.try("end", from, from+together))
	}
	wrote := time.Since(began)
	t.Logf("%d objects wrote their ends within %s, %.0f a second; %d more wait for their alarms", changes-late,
		wrote.Round(time.Millisecond), float64(changes-late)/wrote.Seconds(), late)
	testwait.NoError(t, 2*time.Minute, "the watch sees every change", func() error {
		mu.Lock()
		defer mu.Unlock()
		missed := 0
		for i := range changes {
			if !seen[fmt.Sprintf("box-%d", i)] {
				missed++
			}
		}
		if missed > 0 {
			return fmt.Errorf("%d of %d changes were missed", missed, changes)
		}
		return nil
	})
	t.Logf("%d changes of %d sandboxes were seen within %s, with %d requests; none was missed", changes, number,
		time.Since(began).Round(time.Millisecond), lossy.asked.Load()-asked)
	b.fault("")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	began = time.Now()
	w := server.Worker()
	list, err := w.List(t.Context(), server.Instance, ledgerID)
	if err != nil || len(list) != number-changes {
		t.Fatalf("%d sandboxes are listed, want %d: %v", len(list), number-changes, err)
	}
	took := time.Since(began)
	t.Logf("a list of %d takes %s: %.0f a second", len(list), took.Round(time.Millisecond),
		float64(len(list))/took.Seconds())
}

// oneWorker is an account with one Worker.
type oneWorker struct {
	cloudflare.Deployer
	server *cloudflaretest.Server
	name   string
}

func (o oneWorker) Account(context.Context) (string, error) { return o.server.Instance, nil }

func (o oneWorker) Doubt(string) {}

func (o oneWorker) List(context.Context, string) ([]cloudflare.Site, error) {
	return []cloudflare.Site{{Name: o.name, URL: o.server.URL}}, nil
}

// TestTwoHundredSandboxesShareAWorker: one real Worker runs two hundred containers of two environments. One environment
// gets another image, and so the Worker another version, while a command runs in each container.
func TestTwoHundredSandboxesShareAWorker(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("starts 200 containers: set SANDBOX_TEST_LONG=1")
	}
	c := newChoosing(t)
	const each = 100
	refs := []driver.EnvironmentRef{c.ref, c.ref}
	refs[1].EnvironmentID = "choosing-2"
	var all []driver.Handle
	for i, ref := range refs {
		c.ref = ref
		c.provision(fmt.Sprintf("image %d", i), "lite")
		numbers := make([]int, each)
		handles := make([]driver.Handle, each)
		for n := range numbers {
			numbers[n] = n
		}
		began := time.Now()
		c.must(parallel.Each(8, numbers, func(n *int) error {
			handles[*n] = c.spawn(fmt.Sprintf("did:plc:agent%d-%d", i, *n))
			return nil
		}))
		t.Logf("%d sandboxes of %s came within %s", each, ref.EnvironmentID, time.Since(began).Round(time.Millisecond))
		all = append(all, handles...)
	}
	inEach := func(script string) error {
		return parallel.Each(len(all), all, func(h *driver.Handle) error {
			want := "image 0"
			if h.EnvironmentID == refs[1].EnvironmentID {
				want = "image 1"
			}
			r, err := sandbox.ExecRequest{Command: []string{"sh", "-c", script}}.Normalize()
			if err != nil {
				return err
			}
			res, err := c.x.Exec(t.Context(), *h, r)
			if err == nil && (string(res.Stdout) != want || res.ExitCode != 0) {
				err = fmt.Errorf("sandbox %s says %q and ends with %d, want %q", h.SandboxID, res.Stdout, res.ExitCode, want)
			}
			return err
		})
	}
	began := time.Now()
	c.must(inEach("cat /etc/says"))
	t.Logf("a command in each of %d took %s in all", len(all), time.Since(began).Round(time.Millisecond))
	commands := make(chan error, 1)
	go func() { commands <- inEach("sleep 20; cat /etc/says") }()
	time.Sleep(5 * time.Second) //nolint:forbidigo // all commands have started by then, and run longer
	began = time.Now()
	c.provision("another image", "lite")
	t.Logf("meanwhile the Worker got another version within %s", time.Since(began).Round(time.Millisecond))
	c.must(<-commands)
	// The runtime ends a container without an inactivity timeout about 2 minutes after its object was last active.
	time.Sleep(210 * time.Second) //nolint:forbidigo // requests would keep them alive
	c.must(inEach("cat /etc/says"))
	c.must(parallel.Each(8, all[:10], func(h *driver.Handle) error { return c.x.Sleep(t.Context(), *h, sandbox.SleepStop) }))
	load := c.account.API.Calls()
	t.Logf("the account's API was asked at most %d times in five minutes, and refused %d", load.Most, load.Refused)
	if load.Refused > 0 {
		t.Errorf("%d calls were refused", load.Refused)
	}
	c.account.API.ForgetCalls()
	list, err := c.x.List(t.Context(), c.ref.LedgerID)
	asleep := 0
	for _, o := range list {
		if o.State == sandbox.StateStopped {
			asleep++
		}
	}
	if err != nil || len(list) != len(all) || asleep != 10 || c.account.API.Calls().Most > 3 {
		t.Errorf("%d sandboxes are listed, %d of them asleep, with %d calls: %v", len(list), asleep,
			c.account.API.Calls().Most, err)
	}
	c.must(parallel.Each(8, all, func(h *driver.Handle) error { return c.x.Kill(t.Context(), *h) }))
	for _, ref := range refs {
		c.must(c.x.Deprovision(t.Context(), ref))
	}
	if left := c.account.API.Holding(); len(left) > 0 {
		t.Errorf("the account still has %v", left)
	}
}
