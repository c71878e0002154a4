package provider_test

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
)

// stage is what a guide finds when its first command runs, and what tidies up after its last.
type stage struct {
	// reconciler says that the guide takes a running one for granted. around configures it, and returns variables.
	reconciler bool
	around     func(w *providertest.World, c *reconciler.Config) []string
	// before and after are scripts of the shell.
	before, after string
}

// stages are those of all guides that are run.
var stages = map[string]stage{
	"getting-started":       {},
	"cost-review":           {},
	"upgrading":             {},
	"from-docker-container": {},
	"http":                  {},
	"backup":                {},
	"costs":                 {after: "sandbox env delete catan-7\n"},
	"state":                 {after: "sandbox env delete rpg-1\n"},
	"README":                {after: "terraform destroy -auto-approve\nsandbox env delete catan-7\n"},
	"ci":                    {reconciler: true},
	"lifecycle": {
		reconciler: true,
		before: "sandbox env apply catan-7 --image busybox --network none --labels season=3\n" +
			"sandbox lease create did:plc:abc catan-7\n",
	},
	"drift": {
		reconciler: true,
		before: `cat >main.tf <<'EOF'
` + required + `
variable "image" {}
resource "sandbox_environment" "catan" {
  name  = "catan-7"
  image = var.image
}
resource "sandbox_lease" "ann" {
  environment_id = sandbox_environment.catan.id
  agent_did      = "did:plc:ann"
}
EOF
terraform init
terraform apply -auto-approve
`,
	},
}

// elsewhere are the blocks of these guides that another test runs, or that need what a test does not have.
var elsewhere = map[string]string{
	"README: curl -fsSL https://github.com/sandbox-lease/terraform-provider-sandbox/releases/latest/download/install.sh | sh": "a release",
	"README: make install                   # the provider, where terraform init finds it":                                    "it installs",
}
