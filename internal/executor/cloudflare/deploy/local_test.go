package deploy_test

import (
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

// A deployment runs: sandboxes start in it, survive the next version of their Worker, and end with the deployment.
func TestADeploymentRunsSandboxesUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	a := cloudflaretest.StartAccount(t)
	d, err := deploy.New(deploy.Config{
		AccountID: a.ID,
		Token:     a.Token,
		BaseURL:   a.URL,
		Engine:    func() (image.Engine, error) { return dockertest.Engine(t), nil },
	})
	must(t, err)
	script, err := cloudflare.Script()
	must(t, err)
	want := wanted()
	// The names of containers begin with this name.
	want.Name = cloudflare.DeploymentName(sandbox.RandomIDs(sandbox.LedgerIDLength), "catan-7")
	prepared, err := d.Prepare(t.Context(), want.Name, cloudflaretest.ImageID(t, dockertest.Busybox(t)), nil)
	must(t, err)
	want.Script, want.Image = script, prepared.Reference
	t.Cleanup(func() { dockertest.RemoveNamed(t, "workerd-"+want.Name+"-") })
	site, err := d.Deploy(t.Context(), want)
	must(t, err)

	worker, err := cloudflare.NewWorker(cloudflare.WorkerConfig{URL: site.URL, Key: want.SigningKey})
	must(t, err)
	t.Cleanup(func() { must(t, worker.Close()) })
	instance, err := worker.Instance(t.Context())
	must(t, err)
	if instance != a.ID {
		t.Errorf("instance %q answers, want %q", instance, a.ID)
	}
	h := driver.Handle{
		LedgerID:      "ledgeroflocal222",
		EnvironmentID: "catan-7",
		SandboxID:     sandbox.RandomIDs(sandbox.SandboxIDLength),
		Instance:      instance,
	}
	must(t, worker.Spawn(t.Context(), driver.SandboxSpec{
		Handle:          h,
		LeaseID:         sandbox.LeaseID("did:plc:local", "catan-7"),
		Generation:      1,
		AgentDID:        "did:plc:local",
		EnvironmentType: sandbox.TypeCustom,
		Image:           want.Image,
		Network:         sandbox.NetworkNone,
		Deadline:        time.Now().Add(time.Hour),
		Config:          []byte("{}"),
	}, cloudflare.Limits{}))
	sh(t, worker, h, "echo kept > /workspace/note")

	want.Script = append(script, "\n// the next version\n"...)
	next, err := d.Deploy(t.Context(), want)
	must(t, err)
	if next.VersionID == site.VersionID || next.URL != site.URL {
		t.Errorf("the next version is %s at %s, the one before %s at %s", next.VersionID, next.URL, site.VersionID, site.URL)
	}
	if got := sh(t, worker, h, "cat /workspace/note"); got != "kept\n" {
		t.Errorf("the sandbox says %q after the next version of its Worker", got)
	}

	if len(dockertest.Named(t, "workerd-"+want.Name+"-")) == 0 {
		t.Error("no container has the deployment's name")
	}
	must(t, d.Delete(t.Context(), want.Name))
	if left := a.API.Holding(); len(left) > 0 {
		t.Errorf("the account still has %v", left)
	}
	if _, err := worker.Instance(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("a deleted deployment answers: %v", err)
	}
	if left := dockertest.Named(t, "workerd-"+want.Name+"-"); len(left) > 0 {
		t.Errorf("containers are left: %q", left)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sh runs a script in a sandbox, and returns its output.
func sh(t *testing.T, w *cloudflare.Worker, h driver.Handle, script string) string {
	t.Helper()
	r, err := sandbox.ExecRequest{Command: []string{"sh", "-c", script}}.Normalize()
	must(t, err)
	res, err := w.Exec(t.Context(), h, r)
	must(t, err)
	return string(res.Stdout) + string(res.Stderr)
}
