package provider_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// The plan that builds an image lists the settings of its devcontainer.json that a sandbox cannot have. No later plan
// does.
func TestAPlanSaysOnceWhatOfADevcontainerHasNoEffect(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	base, dir := w.Name+"-base", t.TempDir()
	w.Must(w.Docker.ImageTag(t.Context(), w.Image, base))
	t.Cleanup(func() { _, _ = w.Docker.ImageRemove(context.Background(), base, dockerapi.ImageRemoveOptions{}) })
	w.Must(os.WriteFile(filepath.Join(dir, ".devcontainer.json"),
		[]byte(`{"image": "`+base+`", "privileged": true, "runArgs": ["--init"]}`), 0o600))
	cli := terraform(t, fmt.Sprintf(`
resource "sandbox_container_image" "test" {
  name  = %q
  build = {
    context      = %q
    devcontainer = ".devcontainer.json"
  }
}
`, w.Name, dir))
	const summary = "Devcontainer Settings Without Effect"
	said := cli.Plan().Warning(t, summary).Detail
	if !strings.Contains(said, "- privileged has no effect") || !strings.Contains(said, "- runArgs has no effect") {
		t.Errorf("the plan says %q", said)
	}
	cli.Run("apply", "-auto-approve")
	if again := cli.Run("plan"); strings.Contains(again, summary) || !strings.Contains(again, "No changes") {
		t.Errorf("the second plan says\n%s", again)
	}
	cli.Run("destroy", "-auto-approve")
}
