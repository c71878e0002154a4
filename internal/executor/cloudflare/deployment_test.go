package cloudflare_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestNamesOfDeploymentsAreNamesOfHostsAndDiffer(t *testing.T) {
	t.Parallel()
	const ledger = "ledgerofnames222"
	seen := map[string]string{}
	for _, environment := range []string{
		"catan-7", "catan.7", "catan_7", "7", "a" + strings.Repeat("-", 62), strings.Repeat("x", 63), "c--", "9._-",
	} {
		name := cloudflare.DeploymentName(ledger, environment)
		if err := cloudflare.CheckDeploymentName(name); err != nil {
			t.Errorf("environment %q: %v", environment, err)
		}
		if !strings.Contains(name, ledger) {
			t.Errorf("environment %q: %q does not have the prefix of its ledger", environment, name)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("environments %q and %q are both called %q", environment, other, name)
		}
		seen[name] = environment
	}
	if name := cloudflare.DeploymentName(ledger,
		"catan-7"); !strings.HasPrefix(name, "sandbox-ledgerofnames222-catan-7-") {
		t.Errorf("%q does not say which environment it is", name)
	}
}

func wantedDeployment() cloudflare.Deployment {
	lite, _ := sandbox.ResourcesOf("lite")
	return cloudflare.Deployment{
		Name: cloudflare.DeploymentName("ledgerofnames222", "catan-7"), Script: []byte("export default {}"),
		Image:     "registry.example.com/account/game@sha256:" + strings.Repeat("0a", 32),
		Resources: lite, MaxInstances: 3, SigningKey: "a key of this test", Variables: map[string]string{"FLAVOUR": "plain"},
	}
}

func TestADeploymentIsRefusedByTheNamesOfItsFields(t *testing.T) {
	t.Parallel()
	if err := wantedDeployment().Check(); err != nil {
		t.Fatal(err)
	}
	custom := sandbox.Resources{CPUMillis: 2000, MemoryMB: 6144, DiskMB: 12000}
	for field, change := range map[string]func(*cloudflare.Deployment){
		"":                     func(d *cloudflare.Deployment) { d.Resources = custom },
		"name":                 func(d *cloudflare.Deployment) { d.Name = "production" },
		"script":               func(d *cloudflare.Deployment) { d.Script = nil },
		"image":                func(d *cloudflare.Deployment) { d.Image = "game:latest" },
		"max_instances":        func(d *cloudflare.Deployment) { d.MaxInstances = 0 },
		"signing_key":          func(d *cloudflare.Deployment) { d.SigningKey = "" },
		"variables":            func(d *cloudflare.Deployment) { d.Variables = map[string]string{"DB": "mine"} },
		"rollout_grace":        func(d *cloudflare.Deployment) { d.RolloutGrace = time.Millisecond },
		"rollout_grace ":       func(d *cloudflare.Deployment) { d.RolloutGrace = cloudflare.RolloutGrace + time.Second },
		"resources.memory_mb":  func(d *cloudflare.Deployment) { d.Resources = custom; d.Resources.MemoryMB = 4096 },
		"resources.cpu_millis": func(d *cloudflare.Deployment) { d.Resources = custom; d.Resources.CPUMillis = 500 },
		"resources.disk_mb":    func(d *cloudflare.Deployment) { d.Resources = custom; d.Resources.DiskMB = 12001 },
		"resources.disk_mb ": func(d *cloudflare.Deployment) {
			d.Resources = sandbox.Resources{CPUMillis: 1000, MemoryMB: 3072, DiskMB: 20000}
		},
		"resources.disk_mb  ": func(d *cloudflare.Deployment) {
			d.Resources = sandbox.Resources{CPUMillis: 4000, MemoryMB: 12288, DiskMB: 20001}
		},
	} {
		field = strings.TrimSpace(field)
		d := wantedDeployment()
		change(&d)
		if err := d.Check(); (field == "") != (err == nil) ||
			(err != nil && !strings.Contains(err.Error(), "; "+field+": ")) {
			t.Errorf("field %q: error is %v", field, err)
		}
	}
}

func TestDifferencesNameWhatIsNotAsWanted(t *testing.T) {
	t.Parallel()
	d := wantedDeployment()
	d.Resources.PIDs = 0 // Cloudflare has no such limit
	same := func() cloudflare.Site {
		return cloudflare.Site{
			ScriptDigest:     cloudflare.ScriptDigest(d.Script),
			SigningKeyDigest: cloudflare.KeyDigest(d.SigningKey),
			Variables:        map[string]string{"FLAVOUR": "plain"},
			Image:            d.Image,
			Resources:        d.Resources,
			MaxInstances:     3,
		}
	}
	for setting, change := range map[string]func(*cloudflare.Site){
		"":              func(*cloudflare.Site) {},
		"script":        func(s *cloudflare.Site) { s.ScriptDigest = cloudflare.ScriptDigest([]byte("another")) },
		"signing_key":   func(s *cloudflare.Site) { s.SigningKeyDigest = cloudflare.KeyDigest("another") },
		"variables":     func(s *cloudflare.Site) { s.Variables = nil },
		"image":         func(s *cloudflare.Site) { s.Image = "another" },
		"resources":     func(s *cloudflare.Site) { s.Resources.DiskMB++ },
		"max_instances": func(s *cloudflare.Site) { s.MaxInstances = 4 },
		"rollout_grace": func(s *cloudflare.Site) { s.RolloutGrace = time.Minute },
		"worker": func(s *cloudflare.Site) {
			s.Missing = []cloudflare.Part{cloudflare.PartWorker}
			s.ScriptDigest = ""
		},
		"route": func(s *cloudflare.Site) { s.Missing = []cloudflare.Part{cloudflare.PartRoute} },
	} {
		s := same()
		change(&s)
		var got []string
		for _, difference := range d.Differences(s) {
			got = append(got, difference.Setting)
			if strings.Contains(difference.Wanted+difference.Found, string(d.SigningKey)) {
				t.Errorf("%s: the difference shows the key: %v", setting, difference)
			}
		}
		if strings.Join(got, " ") != setting {
			t.Errorf("differences are %q, want %q", got, setting)
		}
	}
}
