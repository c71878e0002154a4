package recording

import (
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Account is the account that both clients deploy to.
const Account = "0123456789abcdef0123456789abcdef"

// Subject is the first deployment of both clients.
func Subject() cloudflare.Deployment {
	basic, _ := sandbox.ResourcesOf("basic")
	return cloudflare.Deployment{
		Name:         cloudflare.DeploymentName("ledgerofrecord22", "catan-7"),
		Script:       []byte("export class Sandbox {}\nexport default { fetch() { return new Response() } }\n"),
		Image:        "registry.cloudflare.com/" + Account + "/game@sha256:" + strings.Repeat("0a", 32),
		Resources:    basic,
		MaxInstances: 3,
		SigningKey:   "the signing key of a recording",
		Variables:    map[string]string{"FLAVOUR": "plain"},
	}
}

// Changed is Subject with another script and image, a size of its own, and room for more.
func Changed() cloudflare.Deployment {
	d := Subject()
	d.Script = append(d.Script, "// changed\n"...)
	d.Image = strings.ReplaceAll(d.Image, "0a", "0b")
	d.Resources, d.MaxInstances = sandbox.Resources{CPUMillis: 1500, MemoryMB: 6144, DiskMB: 10000}, 5
	return d
}

// Pinned is Subject with the scheduling policy durable_object.
func Pinned() cloudflare.Deployment {
	d := Subject()
	d.Policy = cloudflare.PolicyDurableObject
	d.Resources, _ = sandbox.ResourcesOf("lite") // the policy has no size basic
	d.Images = map[string]string{cloudflare.ImageName(d.Image): d.Image}
	return d
}

// Names returns the Recorder.Names of these deployments.
func Names() map[string]string {
	return map[string]string{
		Subject().Name:               "{name}",
		Account:                      "{account}",
		"registry.cloudflare.com":    "{registry}",
		string(Subject().SigningKey): "{key}",
	}
}
