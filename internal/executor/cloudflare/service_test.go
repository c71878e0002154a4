package cloudflare_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// house is a reconciler with a local account and a log.
type house struct {
	*testing.T
	account *cloudflaretest.Account
	image   string
	config  reconciler.Config
	token   string
	log     *os.File
	// containers is the name pattern of the environment's containers.
	containers string
	end        func()
	service    *client.Client
}

func newHouse(t *testing.T) *house { return newHouseWith(t, "") }

// newHouseWith returns a house with a server that stands in for the Internet.
func newHouseWith(t *testing.T, outside string) *house {
	t.Helper()
	h := &house{T: t, account: cloudflaretest.StartAccountWith(t, outside), token: access.NewToken()}
	h.image = cloudflaretest.ImageID(t, dockertest.Busybox(t))
	dir := t.TempDir()
	for name, line := range map[string]string{"tokens": "test " + h.token, "secrets": webhook.NewSecret()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if h.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.log.Close() }) // it was only read
	log := slog.New(slog.NewJSONHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.config = reconciler.Config{
		Listen:     "127.0.0.1:0",
		LedgerURL:  "sqlite://" + dir + "/ledger.db",
		TokenFile:  dir + "/tokens",
		SecretFile: dir + "/secrets",
		Cloudflare: deploy.Config{AccountID: h.account.ID, Token: h.account.Token, BaseURL: h.account.URL, Logger: log},
		Logger:     log,
		Version:    "test",
	}
	h.start()
	t.Cleanup(func() { h.end() })
	return h
}

// start runs a reconciler until end, which waits for it.
func (h *house) start() {
	h.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- reconciler.Serve(ctx, h.config, func(s reconciler.Started) { ready <- s.Address }) }()
	h.end = func() {
		h.Helper()
		cancel()
		if err := <-ended; err != nil {
			h.Errorf("the reconciler ended with %v", err)
		}
		h.end = func() {}
	}
	select {
	case address := <-ready:
		var err error
		if h.service, err = client.New(client.Config{
			URL:   "http://" + net.JoinHostPort("127.0.0.1", address[strings.LastIndex(address, ":")+1:]),
			Token: h.token,
		}); err != nil {
			h.Fatal(err)
		}
	case err := <-ended:
		cancel()
		h.Fatal(err)
	}
}

func (h *house) environment(id string, change func(*sandbox.PutEnvironment)) {
	h.Helper()
	p := sandbox.PutEnvironment{
		ID: id,
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type:      sandbox.TypeCatan,
			Backend:   sandbox.Cloudflare,
			Image:     h.image,
			Resources: lite(h.T),
		},
	}
	if change != nil {
		change(&p)
	}
	info, err := h.service.Ledger(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	h.containers = "workerd-" + cloudflare.DeploymentName(info.ID, id) + "-"
	h.Cleanup(func() { dockertest.RemoveNamed(h.T, h.containers) })
	if _, err := h.service.PutEnvironment(h.Context(), p); err != nil {
		h.Fatal(err)
	}
}

func (h *house) acquire(environment string) sandbox.LeaseRef {
	h.Helper()
	a, err := h.service.Acquire(h.Context(), sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: environment})
	if err != nil {
		h.Fatal(err)
	}
	return sandbox.LeaseRef{ID: a.Lease.ID}
}

func (h *house) sh(r sandbox.LeaseRef, script string) string {
	h.Helper()
	res, err := h.service.Exec(h.Context(), r, sandbox.ExecRequest{Command: []string{"sh", "-c", script}})
	if err != nil {
		h.Fatal(err)
	}
	return string(res.Stdout) + string(res.Stderr)
}

// lease waits until is reports true for a lease.
func (h *house) lease(r sandbox.LeaseRef, is func(sandbox.Lease) bool) sandbox.Lease {
	h.Helper()
	var l sandbox.Lease
	if !testwait.Poll(3*time.Minute, func() bool {
		var err error
		if l, err = h.service.GetLease(h.Context(), r.ID); err != nil {
			h.Fatal(err)
		}
		return is(l)
	}) {
		h.Fatalf("the lease is %+v", l)
	}
	return l
}

// running returns the running containers of the environment's sandboxes. The local runtime removes a container that
// ended by itself, with its sidecar, after its inactivity timeout. Until then the engine restarts the container if it
// failed. After the deadline each restart ends immediately, so such a container counts as ended.
func (h *house) running() (names []string) {
	h.Helper()
	const exitDeadline = 124 // internal/guest/keeper
	engine := dockertest.Engine(h.T)
	found, err := engine.ContainerList(h.Context(),
		dockerapi.ContainerListOptions{Filters: dockerapi.NewFilters(dockerapi.Filter("name", "^/"+h.containers))})
	if err != nil {
		h.Fatal(err)
	}
	for _, c := range found {
		if strings.HasSuffix(c.Names[0], "-proxy") {
			continue
		}
		now, err := engine.ContainerInspect(h.Context(), c.ID)
		if cerrdefs.IsNotFound(err) || err == nil && now.State.Restarting && now.State.ExitCode == exitDeadline {
			continue
		}
		if err != nil {
			h.Fatal(err)
		}
		names = append(names, c.Names[0])
	}
	return names
}

func destroyed(l sandbox.Lease) bool { return l.Status == sandbox.LeaseDestroyed }

func TestALeaseOnCloudflareFromItsBeginningToItsEnd(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.environment("catan-7", nil)
	ref := h.acquire("catan-7")
	if got := h.sh(ref, "echo settlement > /data/board; echo gone > /workspace/note; cat /workspace/config.json | "+
		"head -c 1; id -u"); got != "{1000\n" {
		t.Errorf("the sandbox says %q", got)
	}
	if _, err := h.service.Sleep(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if got := h.sh(ref, "cat /data/board; ls /workspace"); got != "settlement\nconfig.json\n" {
		t.Errorf("after sleep it has %q", got)
	}
	if _, err := h.service.Release(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	l := h.lease(ref, destroyed)
	report, err := h.service.Costs(t.Context(), sandbox.CostQuery{})
	if err != nil || len(report.Rows) != 1 || report.Rows[0].AwakeSeconds <= 0 || report.Total.Gross <= 0 {
		t.Errorf("%+v cost %+v: %v", l, report, err)
	}
	if err := h.service.DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: "catan-7"}); err != nil {
		t.Fatal(err)
	}
	if left := h.account.API.Holding(); len(left) > 0 {
		t.Errorf("the account still has %v", left)
	}
}

// TestALeaseOnCloudflareEndsOnTimeWithoutItsReconciler ends the reconciler before a lease expires.
func TestALeaseOnCloudflareEndsOnTimeWithoutItsReconciler(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const lifetime = 40 * time.Second
	h.environment("rpg-1", func(p *sandbox.PutEnvironment) { p.MaxLifetime = sandbox.Duration(lifetime) })
	ref := h.acquire("rpg-1")
	began := h.lease(ref, func(l sandbox.Lease) bool { return l.Phase == sandbox.PhaseAwake })
	h.sh(ref, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	h.end()
	info, err := os.ReadFile(h.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(info), string(h.account.Token)) {
		t.Error("the log holds the API token")
	}
	var running []string
	testwait.Poll(time.Until(began.LeasedAt.Add(lifetime+30*time.Second)), func() bool {
		running = h.running()
		return len(running) == 0
	})
	if at := time.Since(began.LeasedAt); at < lifetime-time.Second || at > lifetime+20*time.Second {
		t.Errorf("its containers %q were gone after %s of %s", running, at, lifetime)
	}
	h.inD1(began, "expired")
	h.start()
	l := h.lease(ref, destroyed)
	if l.EndedBy != sandbox.EndedByMaxLifetime {
		t.Errorf("it ended by %s: %s", l.EndedBy, l.EndReason)
	}
	h.inD1(l, "destroyed")
	h.wantBilledAsRecorded(l)
}

// inD1 waits until the account's D1 has a lease with a status.
func (h *house) inD1(l sandbox.Lease, status string) {
	h.Helper()
	testwait.NoError(h, patience, "D1 has lease "+l.ID+" as "+status, func() error {
		rows := h.account.Query(h.T, `SELECT sandbox_id, generation, status FROM sandbox_leases WHERE id = ?`, l.ID)
		if len(rows) == 1 && rows[0]["sandbox_id"] == l.SandboxID && rows[0]["generation"] == float64(l.Generation) &&
			rows[0]["status"] == status {
			return nil
		}
		return fmt.Errorf("it has %v", rows)
	})
}

// executor returns an executor of the account beside the reconciler's.
func (h *house) executor() *deploy.Executor {
	h.Helper()
	x, err := deploy.NewExecutor(h.config.Cloudflare, seal.InFile(location.SecretKeyFile(h.config.LedgerURL), false))
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = x.Close() }) // it was only asked
	return x
}

// wantBilledAsRecorded checks that the cost of a lease that ran once matches the Worker's record.
func (h *house) wantBilledAsRecorded(l sandbox.Lease) {
	h.Helper()
	x := h.executor()
	info, err := h.service.Ledger(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	ran, err := x.Boots(h.Context(),
		driver.Handle{LedgerID: info.ID, EnvironmentID: l.EnvironmentID, SandboxID: l.SandboxID, Instance: h.account.ID})
	if err != nil || len(ran) != 1 {
		h.Fatalf("it is recorded to have run %+v: %v", ran, err)
	}
	took := ran[0].StoppedAt.Sub(ran[0].StartedAt)
	if took <= 0 || ran[0].CPUTime <= 0 {
		h.Errorf("it is recorded to have run %+v", ran[0])
	}
	report, err := h.service.Costs(h.Context(), sandbox.CostQuery{})
	if err != nil || len(report.Rows) != 1 {
		h.Fatalf("%+v: %v", report, err)
	}
	want := pricing.Charge(info.PriceBooks[sandbox.Cloudflare], l.Resources, took, 0, ran[0].CPUTime).Total()
	if got := report.Rows[0]; got.AwakeSeconds != took.Seconds() ||
		got.CPUSeconds != ran[0].CPUTime.Seconds() || got.Gross != want {
		h.Errorf("it cost %s for %+v, and the record %+v comes to %s", got.Gross, got, ran[0], want)
	}
}

// TestAWokenSandboxOnCloudflareIsBilledAtItsNewSize: a change of an environment's size applies to containers that start
// later, even to those of sandboxes that were created before.
func TestAWokenSandboxOnCloudflareIsBilledAtItsNewSize(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.environment("rpg-5", nil)
	ref := h.acquire("rpg-5")
	asleep := func(l sandbox.Lease) bool { return l.Phase == sandbox.PhaseAsleep }
	sleep := func() sandbox.Lease {
		t.Helper()
		if _, err := h.service.Sleep(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
		return h.lease(ref, asleep)
	}
	h.sh(ref, "echo hello")
	sleep()
	basic, _ := sandbox.ResourcesOf("basic")
	h.environment("rpg-5", func(p *sandbox.PutEnvironment) { p.Resources = basic })
	h.sh(ref, "echo hello") // it wakes the sandbox
	l := sleep()

	info, err := h.service.Ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ran, err := h.executor().Boots(t.Context(),
		driver.Handle{LedgerID: info.ID, EnvironmentID: "rpg-5", SandboxID: l.SandboxID, Instance: h.account.ID})
	if err != nil || len(ran) != 2 {
		t.Fatalf("it is recorded to have run %+v: %v", ran, err)
	}
	var want sandbox.NanoUSD
	for i, size := range []sandbox.Resources{lite(t), basic} {
		want += pricing.Charge(info.PriceBooks[sandbox.Cloudflare], size, ran[i].StoppedAt.Sub(ran[i].StartedAt), 0,
			ran[i].CPUTime).Total()
	}
	report, err := h.service.Costs(t.Context(), sandbox.CostQuery{})
	if err != nil || len(report.Rows) != 1 || report.Rows[0].Gross != want {
		t.Errorf("it cost %+v, and the records %+v come to %s: %v", report.Rows, ran, want, err)
	}
}

// TestASilentRestartOnCloudflareIsAFinding crashes a container and starts it again, with an empty disk, while no
// reconciler runs.
func TestASilentRestartOnCloudflareIsAFinding(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.environment("rpg-2", nil)
	ref := h.acquire("rpg-2")
	container := strings.TrimSpace(h.sh(ref, "echo lost > /workspace/note; hostname"))
	l := h.lease(ref, func(l sandbox.Lease) bool { return l.Phase == sandbox.PhaseAwake })
	info, err := h.service.Ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.end()
	x := h.executor()
	handle := driver.Handle{
		LedgerID:      info.ID,
		EnvironmentID: l.EnvironmentID,
		SandboxID:     l.SandboxID,
		Instance:      h.account.ID,
	}
	cloudflaretest.Crash(t, container)
	testwait.NoError(t, patience, "it has stopped", func() error {
		o, err := x.Inspect(t.Context(), handle)
		if err == nil && o.State != sandbox.StateStopped {
			err = fmt.Errorf("it is %+v", o)
		}
		return err
	})
	if _, err := x.Wake(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
	h.start()
	testwait.NoError(t, patience, "the restart is a finding", func() error {
		found, err := h.service.ListDrift(t.Context(), sandbox.DriftFilter{LeaseID: l.ID})
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 1 && found[0].Field == "incarnation" && found[0].Kind == sandbox.DriftStopped &&
			found[0].Expected == "1" && found[0].Observed == "2" {
			return nil
		}
		return fmt.Errorf("it was found that %+v", found)
	})
	if got := h.sh(ref, "ls /workspace"); got != "config.json\n" {
		t.Errorf("its new disk holds %q", got)
	}
}

// TestADeploymentUnderLeasesLosesNone redeploys an environment, which evicts its Durable Objects from memory, while a
// command runs in one sandbox and others start.
func TestADeploymentUnderLeasesLosesNone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.environment("rpg-4", nil)
	ann := h.acquire("rpg-4")
	h.sh(ann, "echo kept > /workspace/note")
	followed := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		var once sync.Once
		var wrote bytes.Buffer
		out := writerFunc(func(p []byte) (int, error) { once.Do(func() { close(begun) }); return wrote.Write(p) })
		line := "echo begun; while ! [ -e /workspace/go ]; do sleep 0.1; done; echo done"
		res, err := h.service.Exec(t.Context(), ann,
			sandbox.ExecRequest{Command: []string{"sh", "-c", line}, Stdout: out, Timeout: sandbox.Duration(time.Hour)})
		if err == nil && (res.ExitCode != 0 || wrote.String() != "begun\ndone\n") {
			err = fmt.Errorf("it wrote %q and ended with %+v", wrote.String(), res)
		}
		followed <- err
	}()
	<-begun
	others := []string{"did:plc:bob", "did:plc:carl", "did:plc:dora"}
	for _, agent := range others {
		if _, err := h.service.Acquire(t.Context(),
			sandbox.Acquire{AgentDID: agent, EnvironmentID: "rpg-4", NoWait: true}); err != nil {
			t.Fatal(err)
		}
	}
	h.environment("rpg-4", func(p *sandbox.PutEnvironment) { p.Resources, _ = sandbox.ResourcesOf("basic") })
	h.sh(ann, "touch /workspace/go")
	if err := <-followed; err != nil {
		t.Errorf("the command that ran meanwhile: %v", err)
	}
	if got := h.sh(ann, "cat /workspace/note"); got != "kept\n" {
		t.Errorf("its sandbox has %q", got)
	}
	for _, agent := range others {
		ref := sandbox.LeaseRef{ID: sandbox.LeaseID(agent, "rpg-4")}
		h.lease(ref, func(l sandbox.Lease) bool { return l.Phase == sandbox.PhaseAwake })
		if got := h.sh(ref, "echo here"); got != "here\n" {
			t.Errorf("the sandbox of %s says %q", agent, got)
		}
	}
	// Each sandbox has a container and a sidecar. The local runtime removes a container a moment after it has ended.
	want := 2 * (len(others) + 1)
	testwait.NoError(t, patience, "each has one container and its sidecar", func() error {
		if there := dockertest.Named(t, h.containers); len(there) != want {
			return fmt.Errorf("there are the containers %q, want %d", there, want)
		}
		return nil
	})
}
