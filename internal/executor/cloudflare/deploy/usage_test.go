package deploy_test

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestUsageIsWhatCloudflareHasCountedOfTheDeployment reads the usage of whole days, in the units of sizes.
func TestUsageIsWhatCloudflareHasCountedOfTheDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := wanted()
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	read := func() map[string][]driver.Metered {
		all, err := w.deployer.Metered(t.Context(), []string{d.Name, "sandbox-absent"}, day, day.AddDate(0, 0, 2))
		w.must(err)
		return all
	}
	if all := read(); len(all) > 0 {
		t.Errorf("usage without deployments: %v", all)
	}
	w.deploy(d)
	if all := read(); len(all) != 1 || all[d.Name] == nil {
		t.Errorf("usage of a deployment that did not run: %v", all)
	}
	counted := func(n int) localapi.Counted { // an hour with 256 MiB and 2 GB
		return localapi.Counted{
			Day:               day.AddDate(0, 0, n),
			CPUSeconds:        90.5,
			MemoryByteSeconds: 3600 * 256 << 20,
			DiskSeconds:       3600 * 2e9,
		}
	}
	w.api.Count(d.Name, counted(-1), counted(0), counted(1), counted(2))
	w.api.Count("another", counted(0))
	days := read()[d.Name]
	if len(days) != 2 || !days[0].Day.Equal(day) || !days[1].Day.Equal(day.AddDate(0, 0, 1)) {
		t.Fatalf("the days are %+v", days)
	}
	if m := days[0]; m.CPU != 90500*time.Millisecond || math.Abs(m.MemoryMBSeconds-3600*256) > 1e-6 ||
		math.Abs(m.DiskMBSeconds-3600*2000) > 1e-6 {
		t.Errorf("the first day is %+v", m)
	}
}

// TestAnExecutorReadsWhatWasCountedOfAnEnvironment: an environment's usage is that of its deployment.
func TestAnExecutorReadsWhatWasCountedOfAnEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := wanted()
	w.deploy(d)
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	w.api.Count(d.Name, localapi.Counted{Day: day, CPUSeconds: 90.5})
	x, err := cloudflare.New(cloudflare.Config{Deployer: w.deployer, MasterKey: "the key of keys"})
	w.must(err)
	instance, err := x.Instance(t.Context())
	w.must(err)
	ref := driver.EnvironmentRef{LedgerID: "ledgerofdeploy22", EnvironmentID: "catan-7", Instance: instance}
	absent := ref
	absent.EnvironmentID = "catan-8"
	groups, err := x.Metered(t.Context(), []driver.EnvironmentRef{ref, absent}, day, day.AddDate(0, 0, 1))
	w.must(err)
	if len(groups) != 1 || groups[0].Shared || !slices.Equal(groups[0].Environments, []driver.EnvironmentRef{ref}) {
		t.Fatalf("the groups are %+v", groups)
	}
	if days := groups[0].Days; len(days) != 1 || !days[0].Day.Equal(day) || days[0].CPU != 90500*time.Millisecond {
		t.Errorf("the days are %+v", days)
	}
	ref.Instance = "another account"
	_, err = x.Metered(t.Context(), []driver.EnvironmentRef{ref}, day, day.AddDate(0, 0, 1))
	w.wantCode(err, sandbox.Unavailable)
}

func TestUsageThatCannotBeReadSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := wanted()
	w.deploy(d)
	now := time.Now()
	w.forget(func(_ int, r *http.Request) localapi.Fault {
		if strings.HasSuffix(r.URL.Path, "/graphql") {
			return localapi.Down
		}
		return localapi.None
	})
	_, err := w.deployer.Metered(t.Context(), []string{d.Name}, now, now.AddDate(0, 0, 1))
	w.wantCode(err, sandbox.Unavailable)
	w.forget(nil)
	w.api.Lacks("analytics")
	_, err = w.deployer.Metered(t.Context(), []string{d.Name}, now, now.AddDate(0, 0, 1))
	w.wantCode(err, sandbox.Forbidden)
	if !strings.Contains(err.Error(), string(deploy.PermAnalytics)) {
		t.Errorf("the error does not name the permission: %v", err)
	}
	if differences := d.Differences(w.find(d.Name)); len(differences) > 0 {
		t.Errorf("without the permission, the deployment differs: %v", differences)
	}
}
