package cloudflare_test

import (
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

// choosing is an environment of policy durable_object on a local account.
type choosing struct {
	*testing.T
	account *cloudflaretest.Account
	x       *cloudflare.Executor
	ref     driver.EnvironmentRef
	spec    sandbox.EnvironmentSpec
	network sandbox.NetworkMode // of the next spec
	egress  *sandbox.Egress
}

func newChoosing(t *testing.T) *choosing {
	t.Helper()
	a := cloudflaretest.StartAccount(t)
	engine := func() (image.Engine, error) { return dockertest.Engine(t), nil }
	d, err := deploy.New(deploy.Config{AccountID: a.ID, Token: a.Token, BaseURL: a.URL, Engine: engine})
	if err != nil {
		t.Fatal(err)
	}
	x, err := cloudflare.New(cloudflare.Config{
		Deployer: d, MasterKey: "the key of keys", SchedulingPolicy: cloudflare.PolicyDurableObject,
	})
	if err != nil {
		t.Fatal(err)
	}
	ledgerID := sandbox.RandomIDs(sandbox.LedgerIDLength)
	ref := driver.EnvironmentRef{LedgerID: ledgerID, EnvironmentID: "choosing-1", Instance: a.ID}
	c := &choosing{T: t, account: a, x: x, ref: ref}
	t.Cleanup(func() {
		c.must(x.Close())
		c.must(d.Close())
		dockertest.RemoveNamed(t, "workerd-"+c.name()+"-")
	})
	return c
}

func (c *choosing) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *choosing) name() string { return cloudflare.SharedName(c.ref.LedgerID) }

// provision gives the environment an image that contains says, and a size.
func (c *choosing) provision(says, size string) {
	c.Helper()
	files := append(dockertest.BusyboxFiles(c.T), dockertest.File{Name: "etc/says", Mode: 0o644, Content: []byte(says)})
	resources, _ := sandbox.ResourcesOf(size)
	c.spec = sandbox.EnvironmentSpec{
		Type: sandbox.TypeCustom, Backend: sandbox.Cloudflare, Resources: resources,
		Image:   cloudflaretest.ImageID(c.T, dockertest.Keep(c.T, files, "ENV PATH=/bin")),
		Network: c.network, Egress: c.egress,
	}.WithDefaults()
	c.must(c.x.Provision(c.Context(), c.ref, c.spec))
}

// spawn creates a sandbox with the environment's current image and size.
func (c *choosing) spawn(agent string, change ...func(*driver.SandboxSpec)) driver.Handle {
	c.Helper()
	h := driver.Handle{
		LedgerID: c.ref.LedgerID, EnvironmentID: c.ref.EnvironmentID, Instance: c.ref.Instance,
		SandboxID: sandbox.RandomIDs(sandbox.SandboxIDLength),
	}
	spec := driver.SandboxSpec{
		Handle: h, LeaseID: sandbox.LeaseID(agent, h.EnvironmentID), Generation: 1, AgentDID: agent,
		EnvironmentType: sandbox.TypeCustom, Image: c.spec.Image, Resources: c.spec.Resources, Network: sandbox.NetworkNone,
		Deadline: time.Now().Add(time.Hour), Config: []byte("{}"),
	}
	for _, f := range change {
		f(&spec)
	}
	c.must(c.x.Spawn(c.Context(), spec))
	return h
}

func (c *choosing) wake(h driver.Handle) {
	c.Helper()
	_, err := c.x.Wake(c.Context(), h)
	c.must(err)
}

func (c *choosing) sh(h driver.Handle, script string) string {
	c.Helper()
	r, err := sandbox.ExecRequest{Command: []string{"sh", "-c", script}}.Normalize()
	c.must(err)
	res, err := c.x.Exec(c.Context(), h, r)
	c.must(err)
	return string(res.Stdout) + string(res.Stderr)
}

// TestEachStartChoosesItsImage: a sandbox keeps the image of its creation, awake, asleep, and after another program
// redeployed its Worker without images. New sandboxes get the environment's image.
func TestEachStartChoosesItsImage(t *testing.T) {
	t.Parallel()
	c := newChoosing(t)
	c.provision("first", "lite")
	ann := c.spawn("did:plc:ann")
	c.sh(ann, "echo kept > /workspace/note")
	cat := c.spawn("did:plc:cat", keepsDisk)
	c.sh(cat, "echo kept > /workspace/note")
	c.provision("second", "standard-1")
	if said := c.sh(ann, "cat /workspace/note /etc/says"); said != "kept\nfirst" {
		t.Errorf("after another image the sandbox that runs says %q", said)
	}
	if o, err := c.x.Inspect(t.Context(), ann); err != nil || o.Boot != 1 || o.State != sandbox.StateRunning {
		t.Errorf("after another image the sandbox is %+v: %v", o, err)
	}
	bob := c.spawn("did:plc:bob")
	if said := c.sh(bob, "cat /etc/says"); said != "second" {
		t.Errorf("a new sandbox has the image %q", said)
	}
	c.must(c.x.Sleep(t.Context(), ann, sandbox.SleepStop))
	c.must(c.x.Sleep(t.Context(), cat, sandbox.SleepStop))
	c.provision("third", "lite")
	c.wake(ann)
	if said := c.sh(ann, "cat /etc/says"); said != "first" {
		t.Errorf("a sandbox that slept wakes with the image %q", said)
	}
	c.wake(cat)
	if said := c.sh(cat, "cat /workspace/note /etc/says"); said != "kept\nfirst" {
		t.Errorf("a sandbox that keeps its disk wakes and says %q", said)
	}
	if images := c.account.API.StartImages(c.name()); len(images) != 3 {
		t.Errorf("starts choose from %v", images)
	}
	c.must(c.x.Kill(t.Context(), ann))
	c.must(c.x.Kill(t.Context(), bob))
	c.must(c.x.Kill(t.Context(), cat))
	c.provision("fourth", "lite")
	if images := c.account.API.StartImages(c.name()); len(images) != 2 {
		t.Errorf("once the others were killed, starts choose from %v", images)
	}
	c.must(c.x.Deprovision(t.Context(), c.ref))
	if left := c.account.API.Holding(); len(left) > 0 {
		t.Errorf("the account still has %v", left)
	}
}

// TestARepairedEnvironmentWakesItsSandboxes: another program has uploaded the Worker without its images.
func TestARepairedEnvironmentWakesItsSandboxes(t *testing.T) {
	t.Parallel()
	c := newChoosing(t)
	c.provision("first", "lite")
	ann := c.spawn("did:plc:ann")
	c.must(c.x.Sleep(t.Context(), ann, sandbox.SleepStop))
	c.provision("second", "lite")
	was := c.account.API.StartImages(c.name())
	c.account.ChangeScript(t, "\n// by another hand\n")
	if images := c.account.API.StartImages(c.name()); len(images) > 0 {
		t.Fatalf("the upload has left the images %v", images)
	}
	_, err := c.x.Wake(t.Context(), ann)
	if sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "apply the environment again") {
		t.Errorf("a sandbox whose image is not there wakes with %v", err)
	}
	found, err := c.x.Repair(t.Context(), c.ref, c.spec)
	if err != nil || found == "" {
		t.Errorf("it has repaired %q: %v", found, err)
	}
	if images := c.account.API.StartImages(c.name()); strings.Join(images, " ") != strings.Join(was, " ") {
		t.Errorf("once it is repaired, starts choose from %v, want %v", images, was)
	}
	c.wake(ann)
	if said := c.sh(ann, "cat /etc/says"); said != "first" {
		t.Errorf("it wakes with the image %q", said)
	}
	c.must(c.x.Kill(t.Context(), ann))
}

// TestTheSizeBasicNeverStartsByChoice: the platform supports it only with the policy default.
func TestTheSizeBasicNeverStartsByChoice(t *testing.T) {
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{})
	w := &world{t, server, server.Worker()}
	const ref = "registry.example.com/account/game@sha256:"
	digest := strings.Repeat("0a", 32)
	for _, choice := range []cloudflare.Choice{
		{Image: ref + digest, Instance: "basic"}, {Image: ref + digest},
		{Image: ref + digest, Instance: map[string]int{"vcpu": 1}},
		{Image: "registry.example.com/account/game:v1", Instance: "lite"}, {Image: ref + digest[2:], Instance: "lite"},
	} {
		w.wantError(w.worker.SpawnChosen(t.Context(), w.spec(), cloudflare.Limits{}, &choice), sandbox.Invalid, "")
	}
}
