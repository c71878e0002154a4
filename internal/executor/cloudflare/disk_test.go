package cloudflare_test

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

//go:embed testdata/disk.js
var changedPlatform string

// TestKeptDisk checks the disk of a sandbox that keeps it.
func TestKeptDisk(t *testing.T) {
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{Append: changedPlatform})
	w := &world{t, server, server.Worker()}
	w.each(map[string]func(*world){
		"it survives every sleep":                      diskSurvivesSleeps,
		"it survives a sleep that no request began":    diskSurvivesIdle,
		"a crash loses it, and what slept before":      diskLostByCrash,
		"a snapshot that fails delays no sleep":        diskWithoutSnapshot,
		"without room the snapshot waits":              diskWaitsForRoom,
		"a snapshot that cannot be restored is no end": diskNotRestored,
		"a kill leaves nothing of it":                  diskKilled,
		"a kill waits for no snapshot":                 diskKilledAtOnce,
	})
}

func keepsDisk(s *driver.SandboxSpec) { s.KeepDisk = true }

// on returns a change that makes a sandbox keep its disk, on a platform that disk.js changes.
func on(variable, value string) func(*driver.SandboxSpec) {
	return func(s *driver.SandboxSpec) { s.KeepDisk, s.Env = true, map[string]string{variable: value} }
}

const (
	writeDisk = "echo work > /workspace/x; mkdir /tmp/y; echo temporary > /tmp/y/z; echo data > /data/d"
	readDisk  = "cat /workspace/x /tmp/y/z /data/d 2>/dev/null"
	allOfDisk = "work\ntemporary\ndata\n"
)

// wantDisk checks the content and the status of an awake sandbox's disk. lost is part of the reason for a loss, "" if
// the disk was kept.
func (w *world) wantDisk(h driver.Handle, has, lost string) {
	w.Helper()
	if got := w.sh(h, readDisk); got != has {
		w.Errorf("its disk has %q, want %q", got, has)
	}
	d := w.inspect(h).Disk
	if d == nil || d.SavedAt.IsZero() != (lost != "") || !strings.Contains(d.Lost, lost) || lost == "" && d.Lost != "" {
		w.Errorf("the status of its disk is %+v, want it lost by %q", d, lost)
	}
}

func diskSurvivesSleeps(w *world) {
	h := w.spawn(cloudflare.Limits{}, keepsDisk)
	if d := w.inspect(h).Disk; d == nil || *d != (sandbox.KeptDisk{}) {
		w.Errorf("before its first sleep the status of its disk is %+v", d)
	}
	w.sh(h, writeDisk)
	for range 2 {
		before := time.Now().Add(-time.Second)
		w.must(w.worker.Sleep(w.Context(), h))
		s := w.inspect(h)
		if s.Disk == nil || s.Disk.SavedAt.Before(before) || s.Disk.Lost != "" {
			w.Errorf("asleep the status of its disk is %+v", s.Disk)
		}
		w.must(w.worker.Wake(w.Context(), h))
		w.wantDisk(h, allOfDisk, "")
		if at := w.inspect(h).SavedAt; !at.Equal(s.SavedAt) {
			w.Errorf("/data was saved at %s, and again at %s without a change", s.SavedAt, at)
		}
	}
	w.sh(h, "echo more >> /data/d")
	w.crash(h)
	w.awaitStopped(h)
	w.must(w.worker.Wake(w.Context(), h))
	w.wantDisk(h, "data\nmore\n", "crash")
}

func diskSurvivesIdle(w *world) {
	h := w.spawn(cloudflare.Limits{SleepAfter: 10 * time.Second}, keepsDisk)
	w.sh(h, writeDisk)
	if p := w.awaitStopped(h); p.Cause != cloudflare.CauseIdle {
		w.Errorf("it stopped by %s", p.Cause)
	}
	w.must(w.worker.Wake(w.Context(), h))
	w.wantDisk(h, allOfDisk, "")
}

func diskLostByCrash(w *world) {
	h := w.spawn(cloudflare.Limits{}, keepsDisk)
	w.sh(h, writeDisk)
	w.crash(h)
	w.awaitStopped(h)
	w.must(w.worker.Wake(w.Context(), h))
	w.wantDisk(h, "data\n", "ended without a sleep: crash")
}

func diskWithoutSnapshot(w *world) {
	h := w.spawn(cloudflare.Limits{}, on("PLATFORM", "no snapshots"))
	w.sh(h, writeDisk)
	w.must(w.worker.Sleep(w.Context(), h))
	if s := w.inspect(h); s.Period.Cause != cloudflare.CauseSleep || !strings.Contains(s.Disk.Lost, "out of storage") {
		w.Errorf("asleep its status is %+v, with the disk %+v", s, s.Disk)
	}
	w.must(w.worker.Wake(w.Context(), h))
	w.wantDisk(h, "data\n", "its snapshot failed: out of storage")
}

func diskWaitsForRoom(w *world) {
	h := w.spawn(cloudflare.Limits{}, on("PLATFORM", "no room"))
	w.sh(h, writeDisk)
	w.must(w.worker.Sleep(w.Context(), h))
	w.wantError(w.worker.Wake(w.Context(), h), sandbox.CapacityExceeded, "")
	w.must(w.worker.Wake(w.Context(), h))
	w.wantDisk(h, allOfDisk, "")
	w.wantPeriods(h, cloudflare.CauseSleep, cloudflare.CauseStartFailed, "")
}

func diskNotRestored(w *world) {
	days := func(n int64) string { return strconv.FormatInt(n*24*time.Hour.Milliseconds()+1000, 10) }
	for why, platform := range map[string]func(*driver.SandboxSpec){
		"could not be restored": on("PLATFORM", "lost"),
		"expired after 30 days": on("AGE", days(30)),
		"of another image":      on("OTHER_IMAGE", "registry.example.com/game@sha256:"+strings.Repeat("0a", 32)),
		"":                      on("AGE", days(29)),
	} {
		h := w.spawn(cloudflare.Limits{}, platform)
		w.sh(h, writeDisk)
		w.must(w.worker.Sleep(w.Context(), h))
		w.must(w.worker.Wake(w.Context(), h))
		if why == "" {
			w.wantDisk(h, allOfDisk, "")
		} else {
			w.wantDisk(h, "data\n", why)
		}
	}
}

func diskKilled(w *world) {
	spec := w.spec()
	spec.KeepDisk = true
	w.must(w.worker.Spawn(w.Context(), spec, cloudflare.Limits{}))
	w.sh(spec.Handle, writeDisk)
	w.must(w.worker.Sleep(w.Context(), spec.Handle))
	w.must(w.worker.Kill(w.Context(), spec.Handle))
	w.must(w.worker.Spawn(w.Context(), spec, cloudflare.Limits{})) // it would find any remaining state of the object
	if d, got := w.inspect(spec.Handle).Disk, w.sh(spec.Handle, readDisk); d == nil || *d != (sandbox.KeptDisk{}) || got != "" {
		w.Errorf("after a kill its name has the disk %+v with %q", d, got)
	}
}

// madeWith is an account whose environments were created with a policy; "" has no environments yet.
type madeWith struct {
	cloudflare.Deployer
	policy cloudflare.SchedulingPolicy
}

func (madeWith) Account(context.Context) (string, error) { return "account", nil }

func (m madeWith) Find(_ context.Context, name string) (cloudflare.Site, error) {
	if m.policy == "" {
		return cloudflare.Site{}, sandbox.Errorf(sandbox.NotFound, "there is no %s", name)
	}
	return cloudflare.Site{Name: name, Policy: m.policy}, nil
}

func (madeWith) List(context.Context, string) ([]cloudflare.Site, error) { return nil, nil }

// TestADiskIsKeptByThePolicyOfTheEnvironmentOnly: an environment's own policy takes precedence over the configured one.
func TestADiskIsKeptByThePolicyOfTheEnvironmentOnly(t *testing.T) {
	t.Parallel()
	cloudflaretest.Need(t)
	for _, test := range []struct {
		configured, made cloudflare.SchedulingPolicy
		size             string
		refused          bool
	}{
		{cloudflare.PolicyDurableObject, "", "lite", false},
		{cloudflare.PolicyDurableObject, "", "basic", true},
		{cloudflare.PolicyDurableObject, cloudflare.PolicyDefault, "lite", true},
		{cloudflare.PolicyDefault, "", "lite", true},
		{cloudflare.PolicyDefault, cloudflare.PolicyDurableObject, "lite", false},
	} {
		x, err := cloudflare.New(cloudflare.Config{
			Deployer: madeWith{policy: test.made}, MasterKey: "the key of keys", SchedulingPolicy: test.configured,
		})
		if err != nil {
			t.Fatal(err)
		}
		resources, _ := sandbox.ResourcesOf(test.size)
		ref := driver.EnvironmentRef{LedgerID: "ledgerofdisks222", EnvironmentID: "catan-7", Instance: "account"}
		spec := sandbox.EnvironmentSpec{
			Backend: sandbox.Cloudflare, Resources: resources, KeepDisk: true,
			Image: "registry.example.com/account/game@sha256:" + strings.Repeat("0a", 32),
		}.WithDefaults()
		err = x.Check(t.Context(), ref, spec)
		var e *sandbox.Error
		if test.refused != (errors.As(err, &e) && e.Code == sandbox.Invalid && len(e.Fields) > 0 && e.Fields[0].Name == "keep_disk") ||
			!test.refused && err != nil {
			t.Errorf("%+v: it says %v", test, err)
		}
		spec.KeepDisk = false
		if err := x.Check(t.Context(), ref, spec); err != nil {
			t.Errorf("%+v: without keep_disk it says %v", test, err)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

// diskKilledAtOnce kills a sandbox while its disk is saved for a sleep. The snapshot may take until its timeout of a
// minute.
func diskKilledAtOnce(w *world) {
	h := w.spawn(cloudflare.Limits{}, on("PLATFORM", "slow"))
	w.sh(h, writeDisk+"; setsid sh -c 'sleep 1; echo late > /data/late' >/dev/null 2>&1 &")
	last := w.inspect(h).SavedAt
	w.sh(h, "until [ -e /data/late ]; do sleep 0.1; done")
	slept := make(chan error, 1)
	go func() { slept <- w.worker.Sleep(w.Context(), h) }()
	testwait.Until(w, patience, "/data is saved, which is before the snapshot", func() bool {
		return w.inspect(h).SavedAt.After(last)
	})
	began := time.Now()
	w.must(w.worker.Kill(w.Context(), h))
	if took := time.Since(began); took > 20*time.Second {
		w.Errorf("the kill took %s", took)
	}
	w.must(<-slept)
	w.wantPeriods(h, cloudflare.CauseKill)
}
