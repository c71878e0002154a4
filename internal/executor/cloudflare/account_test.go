package cloudflare_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// realIdle is how long a sandbox on a real account gets no requests. It is longer than the platform's own timeout.
const realIdle = 20 * time.Minute

// TestASandboxLivesOnARealAccount needs CLOUDFLARE_ACCOUNT_ID, CLOUDFLARE_API_TOKEN with deploy.Permissions (and
// deploy.PermAnalytics to read usage), and SANDBOX_CLOUDFLARE_TEST_IMAGE: an image for linux/amd64 by its digest, with
// a shell, or two of them separated by a comma. It costs about a cent, and removes everything that it created.
func TestASandboxLivesOnARealAccount(t *testing.T) {
	images := os.Getenv("SANDBOX_CLOUDFLARE_TEST_IMAGE")
	if images == "" {
		t.Skip("set SANDBOX_CLOUDFLARE_TEST_IMAGE, CLOUDFLARE_ACCOUNT_ID and CLOUDFLARE_API_TOKEN to run a sandbox on a " +
			"real account, which takes 25 minutes")
	}
	cfg := deploy.Config{}
	cfg.FillIn(os.Getenv)
	before, after, found := strings.Cut(images, ",")
	if !found {
		after = before
	}
	liveOn(t, cfg, before, after, realIdle)
}

// TestASandboxLivesOnTheLocalAccount does the same as on a real account, but idles for a shorter time.
func TestASandboxLivesOnTheLocalAccount(t *testing.T) {
	t.Parallel()
	a := cloudflaretest.StartAccount(t)
	imageOf := func(says string) string {
		files := append(dockertest.BusyboxFiles(t), dockertest.File{Name: "etc/says", Mode: 0o644, Content: []byte(says)})
		return cloudflaretest.ImageID(t, dockertest.Keep(t, files, "ENV PATH=/bin"))
	}
	liveOn(t, deploy.Config{
		AccountID: a.ID, Token: a.Token, BaseURL: a.URL,
		Engine: func() (image.Engine, error) { return dockertest.Engine(t), nil },
	}, imageOf("before"), imageOf("after"), 10*time.Second)
	if left := a.API.Holding(); len(left) > 0 {
		t.Errorf("the account still has %v", left)
	}
}

// liveOn runs an environment and its sandboxes on an account, from their creation to their removal.
func liveOn(t *testing.T, cfg deploy.Config, before, after string, idle time.Duration) {
	t.Helper()
	d, err := deploy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	x, err := cloudflare.New(cloudflare.Config{
		Deployer: d, MasterKey: sandbox.Secret(sandbox.RandomIDs(40)), SchedulingPolicy: cloudflare.PolicyDurableObject,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &choosing{T: t, x: x, ref: driver.EnvironmentRef{
		LedgerID: sandbox.RandomIDs(sandbox.LedgerIDLength), EnvironmentID: "live", Instance: cfg.AccountID,
	}}
	t.Cleanup(func() { c.removeAll(d) })
	began := time.Now()
	passed := func(what string) {
		t.Logf("%s within %s", what, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}
	provision := func(image, size string) {
		resources, _ := sandbox.ResourcesOf(size)
		c.spec = sandbox.EnvironmentSpec{
			Type: sandbox.TypeCustom, Backend: sandbox.Cloudflare, Resources: resources, Image: image,
		}.WithDefaults()
		c.must(x.Provision(t.Context(), c.ref, c.spec))
	}
	provision(before, "lite")
	passed("the environment was made")
	ann := c.spawn("did:plc:ann")
	passed("a sandbox has started")
	c.sh(ann, "echo kept > /data/note")
	passed("a command has run")

	time.Sleep(idle) //nolint:forbidigo // idleness is real time
	began = time.Now()
	if o, err := x.Inspect(t.Context(), ann); err != nil || o.Boot != 1 || o.State != sandbox.StateRunning {
		t.Errorf("after %s without a request the sandbox is %+v: %v", idle, o, err)
	}
	c.wantNote(ann)
	passed("after that it answered")

	provision(after, "standard-1")
	passed("the environment got another image and size")
	bob := c.spawn("did:plc:bob")
	passed("a sandbox of those has started")
	c.wantNote(ann)
	c.must(x.Sleep(t.Context(), ann, sandbox.SleepStop))
	passed("the first sandbox was put to sleep")
	c.wake(ann)
	c.wantNote(ann)
	passed("it was woken")

	for _, h := range []driver.Handle{ann, bob} {
		used, err := x.Usage(t.Context(), h)
		c.must(err)
		boots, err := x.Boots(t.Context(), h)
		c.must(err)
		t.Logf("sandbox of %s uses %+v, in %+v", h.EnvironmentID, used, boots)
		if used.CPUTime <= 0 || used.MemoryBytes <= 0 {
			t.Errorf("its usage is %+v", used)
		}
	}
	today := time.Now().UTC().Truncate(24 * time.Hour)
	groups, err := x.Metered(t.Context(), []driver.EnvironmentRef{c.ref}, today, today.AddDate(0, 0, 1))
	t.Logf("Cloudflare has counted %+v so far (%v)", groups, err) // its figures are hours late
	if err != nil && sandbox.CodeOf(err) != sandbox.Forbidden {
		t.Error(err)
	}

	list, err := x.List(t.Context(), c.ref.LedgerID)
	if err != nil || len(list) != 2 {
		t.Errorf("%d sandboxes are listed, want 2: %v", len(list), err)
	}
	c.must(x.Kill(t.Context(), ann))
	c.must(x.Kill(t.Context(), bob))
	c.must(x.Deprovision(t.Context(), c.ref))
	passed("everything was removed")
	if _, err := d.Find(t.Context(), cloudflare.SharedName(c.ref.LedgerID)); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("parts of the deployment are left: %v", err)
	}
}

func (c *choosing) wantNote(h driver.Handle) {
	c.Helper()
	if said := c.sh(h, "cat /data/note"); said != "kept\n" {
		c.Errorf("the sandbox has the note %q", said)
	}
}

// removeAll removes the remains of a failed test.
func (c *choosing) removeAll(d *deploy.Deployer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), 5*time.Minute)
	defer cancel()
	if err := d.Delete(ctx, cloudflare.SharedName(c.ref.LedgerID)); err != nil {
		c.Errorf("delete %s by hand: %v", cloudflare.SharedName(c.ref.LedgerID), err)
	}
	if err := d.RemoveImages(ctx, cloudflare.DeploymentName(c.ref.LedgerID, c.ref.EnvironmentID)); err != nil {
		c.Errorf("remove the images of %s by hand: %v", c.ref.LedgerID, err)
	}
	if err := c.x.Close(); err != nil {
		c.Error(err)
	}
	if err := d.Close(); err != nil {
		c.Error(err)
	}
}
