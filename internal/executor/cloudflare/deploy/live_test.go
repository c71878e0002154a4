package deploy_test

import (
	"context"
	"os"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// live creates a deployment, compares it, changes it and deletes it.
func live(t *testing.T, d *deploy.Deployer, first, second cloudflare.Deployment) {
	t.Helper()
	for _, want := range []cloudflare.Deployment{first, second} {
		if _, err := d.Deploy(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		site, err := d.Find(t.Context(), want.Name)
		if err != nil {
			t.Fatal(err)
		}
		if differences := want.Differences(site); len(differences) > 0 {
			t.Errorf("the site differs from the deployment: %v", differences)
		}
	}
	if err := d.Delete(t.Context(), first.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Find(t.Context(), first.Name); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("the deleted deployment is found: %v", err)
	}
}

// TestARealAccountIsAsItsLocalServer needs CLOUDFLARE_ACCOUNT_ID, CLOUDFLARE_API_TOKEN with deploy.Permissions, and
// SANDBOX_CLOUDFLARE_TEST_IMAGE: an image with its digest that the account can read. It starts no container.
func TestARealAccountIsAsItsLocalServer(t *testing.T) {
	t.Parallel()
	image := os.Getenv("SANDBOX_CLOUDFLARE_TEST_IMAGE")
	if image == "" {
		t.Skip("set SANDBOX_CLOUDFLARE_TEST_IMAGE, CLOUDFLARE_ACCOUNT_ID and CLOUDFLARE_API_TOKEN to deploy " +
			"to a real account")
	}
	d, err := deploy.New(deploy.Config{
		AccountID: os.Getenv("CLOUDFLARE_ACCOUNT_ID"),
		Token:     sandbox.Secret(os.Getenv("CLOUDFLARE_API_TOKEN")),
	})
	if err != nil {
		t.Fatal(err)
	}
	first, second := wanted(), otherwise()
	first.Name = cloudflare.DeploymentName(sandbox.RandomIDs(sandbox.LedgerIDLength), "live")
	first.Script = []byte("import { DurableObject } from 'cloudflare:workers';\n" +
		"export class Sandbox extends DurableObject {}\nexport default { fetch() { return new Response() } };\n")
	first.Image, second.Image = image, image
	second.Name, second.Script = first.Name, append([]byte("// changed\n"), first.Script...)
	t.Cleanup(func() {
		if err := d.Delete(context.WithoutCancel(t.Context()), first.Name); err != nil {
			t.Errorf("delete %s by hand: %v", first.Name, err)
		}
	})
	live(t, d, first, second)
}
