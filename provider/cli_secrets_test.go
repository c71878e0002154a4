package provider_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// A secret's value is in no plan, no state and no log of any level, and the ledger holds it only encrypted.
func TestAccSecretsStandNowhere(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	const value = "hunter2-never-shown"
	tf := terraform(t, fmt.Sprintf(`
variable "token" {
  type      = string
  ephemeral = true
}
resource "sandbox_environment" "game" {
  name  = %q
  image = %q
  network = {
    mode = "none"
  }
  secrets = { token = { value_wo = var.token, value_wo_version = 1 } }
}
`, w.Name, w.Image))
	w.Watch(tf.LedgerURL())
	tf.Env = append(tf.Env, "TF_VAR_token="+value, "TF_LOG=TRACE", "TF_LOG_PATH="+filepath.Join(tf.Dir, "terraform.log"))
	told := tf.Run("plan", "-out=plan") + tf.Run("show", "-json", "plan") + tf.Run("apply", "plan") +
		tf.Run("show", "-json")
	if !strings.Contains(told, "value_wo_version") {
		t.Errorf("nothing was told of the secret at all: %s", told)
	}
	if strings.Contains(told, value) {
		t.Errorf("Terraform told the secret: %s", told)
	}
	files := 0
	err := filepath.WalkDir(tf.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(value)) {
			t.Errorf("%s holds the secret", path)
		}
		return err
	})
	if err != nil || files < 5 {
		t.Errorf("searched %d files: %v", files, err)
	}
	if told := tf.Run("destroy", "-auto-approve"); strings.Contains(told, value) {
		t.Errorf("Terraform told the secret when it destroyed: %s", told)
	}
}
