package cloudflare

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Names of a Worker's bindings, as in worker/src/env.ts.
const (
	BindingSandbox    = "SANDBOX"            // the Durable Objects, of ClassSandbox
	BindingDatabase   = "DB"                 // D1
	BindingState      = "STATE"              // R2
	BindingSigningKey = "SIGNING_KEY"        // a secret
	BindingInstance   = "INSTANCE"           // plain text: the account's id
	BindingOlderKey   = "SIGNING_KEY_OLDER"  // a secret; present while keys are rotated
	BindingKeyDigest  = "SIGNING_KEY_DIGEST" // plain text, for us: a secret cannot be read back
	BindingPolicy     = "SCHEDULING_POLICY"  // plain text, for us: PolicyDurableObject, or absent
	// BindingImages is a prefix of the names of plain texts, for us: Deployment.Images, which cannot be read back either.
	BindingImages = "START_IMAGE_"

	// ClassSandbox is the class of the Durable Objects.
	ClassSandbox = "Sandbox"
)

// CompatibilityDate selects the platform behavior that the Worker is written for. Since 2026-04-01 each container has a
// process namespace of its own.
const CompatibilityDate = "2026-10-01"

// Deployer creates and deletes deployments on one Cloudflare account. A deployment serves one environment, or several
// that share it. It has a Worker with its Durable Objects and a workers.dev route, a container application, a D1
// database and an R2 bucket. All parts have the deployment's name and are found by it, so no record of them is needed.
// Methods are safe for concurrent use with different names.
//
// Each method may also return: Unauthenticated (Cloudflare does not know the token), Forbidden (the token lacks
// permissions, which the error names), Unavailable (nothing is known to have changed), UnknownOutcome (the answer to a
// change was lost), Timeout. After any error the call may be retried: it continues where the last one stopped.
type Deployer interface {
	// Account returns the account's id, which is the backend instance, once Cloudflare has confirmed it. Errors: NotFound,
	// if the account has no workers.dev subdomain.
	Account(ctx context.Context) (string, error)
	// Prepare pushes an image to the account's registry in the form that a sandbox needs: for linux/amd64, with the guest
	// inside. name is the environment's DeploymentName. image is a reference with a digest, in a registry or on the
	// deployer's engine, or an id on that engine. An image in the account's registry that has the guest is used unchanged.
	// An image that was prepared before is not pushed again, nor looked up at its origin. The image that the deployment
	// has now stays. Older ones are removed unless keep, which may be nil, keeps their digests. Errors: Invalid, for an
	// image of another platform; NotFound with ReasonImageNotFound; CapacityExceeded, when the registry has no room;
	// Failed.
	Prepare(ctx context.Context, name, image string, keep func(digest string) bool) (Prepared, error)
	// Deploy creates a deployment, or brings it up to date. It does not touch parts that match: uploading a Worker resets
	// its Durable Objects. Running sandboxes keep their image and size until they have run for Deployment.RolloutGrace.
	// Errors: Invalid, naming the fields; Conflict, when the Worker of that name is not ours; CapacityExceeded; NotFound
	// with ReasonImageNotFound; Failed.
	Deploy(ctx context.Context, d Deployment) (Site, error)
	// Route gives the Worker of a deployment its route, and changes nothing else. Errors: NotFound, when there is no
	// Worker; Conflict as Deploy.
	Route(ctx context.Context, name string) (Site, error)
	// Find reads a deployment and changes nothing. Site.Missing lists the parts that an incomplete one lacks. Errors:
	// NotFound, when it has no parts; Conflict as Deploy.
	Find(ctx context.Context, name string) (Site, error)
	// List returns the deployments of a ledger, by the names of DeploymentName and SharedName. Each has its Name, its URL
	// and the known settings of its application. A Worker that is known to have no route has no URL. List makes few calls,
	// whatever the number of deployments. It must return all of them: the executor asks each for its sandboxes, and those
	// of an omitted one would count as gone.
	List(ctx context.Context, ledgerID string) ([]Site, error)
	// Doubt reports that a Worker does not answer at its URL from List: the next List asks Cloudflare again.
	Doubt(name string)
	// Metered returns the usage that Cloudflare has counted for the containers of deployments and the machines that run
	// them, by name. It covers each UTC day from from to before to, and omits deployments without an application.
	Metered(ctx context.Context, names []string, from, to time.Time) (map[string][]driver.Metered, error)
	// RemoveImages removes the images that were prepared for a name. Absent is success.
	RemoveImages(ctx context.Context, name string) error
	// Delete removes a deployment with all its sandboxes, their Durable Objects, the contents of its database and bucket,
	// and the images that were prepared for its name. An absent or incomplete deployment is success. Errors: Conflict as
	// Deploy.
	Delete(ctx context.Context, name string) error
}

// Prepared is an image that a deployment can use.
type Prepared struct {
	// Reference is the value for Deployment.Image.
	Reference string
	// Sent reports that the image was pushed: the account's registry did not have it.
	Sent bool
}

// Deployment has the settings to deploy for one environment, or for several that share a deployment.
type Deployment struct {
	// Name is a result of DeploymentName or SharedName.
	Name string
	// Script is the Worker: one ES module (see Script).
	Script []byte
	// Policy is the scheduling policy of its application; "" means PolicyDefault. MaxInstances and RolloutGrace have
	// no effect with PolicyDurableObject, and Resources are only checked.
	Policy SchedulingPolicy
	// Image is the image that containers run: a reference with a digest, from Prepare.
	Image string
	// Images are the images that starts may choose under PolicyDurableObject, by ImageName: at most MaxImages, with Image.
	Images map[string]string
	// Resources is the size of each container: one of sandbox.InstanceTypes, or a custom size. Cloudflare allows 1 to 4
	// vCPU, at least 3 GiB of memory for each vCPU and at most 12 GiB, and at most 20 GB of disk
	// (developers.cloudflare.com/containers/platform-details/limits, read 2026-11). PIDs are not limited.
	Resources sandbox.Resources
	// MaxInstances is how many containers may run at the same time, at least 1.
	MaxInstances int
	// SigningKey is the key that callers of the Worker sign with.
	SigningKey sandbox.Secret
	// OlderKey is a key that the Worker also accepts; "" for none.
	OlderKey sandbox.Secret
	// Variables are plain-text bindings of the Worker, beside the standard ones, whose names they must not have.
	Variables map[string]string
	// RolloutGrace is how long after its start a container is not replaced when Image or Resources change. It is in whole
	// seconds, at most the constant RolloutGrace. Zero replaces a container immediately.
	RolloutGrace time.Duration
}

// Part is a part of a deployment.
type Part string

// The parts.
const (
	PartDatabase    Part = "database"
	PartBucket      Part = "bucket"
	PartWorker      Part = "worker"
	PartSettings    Part = "settings" // the Worker's: its bindings to the other parts, and its compatibility date
	PartApplication Part = "application"
	PartRollout     Part = "rollout" // of the application's last change; it was not started
	PartRoute       Part = "route"
)

// Site is a deployment as it exists at Cloudflare.
type Site struct {
	Name string
	// URL is the Worker's address, "" while it has no route. A new route may take seconds to work everywhere.
	URL string
	// Ids that Cloudflare assigned; "" for a missing part. The bucket has only its name.
	DatabaseID, NamespaceID, ApplicationID, VersionID string
	// Missing lists the missing parts, in the order of their creation.
	Missing []Part

	// Settings that it was deployed with; zero if their part is missing.
	ScriptDigest     string // as ScriptDigest returns it
	SigningKeyDigest string // as Deployment.KeysDigest returns it
	Variables        map[string]string
	Policy           SchedulingPolicy // the application's, else the one that the Worker was uploaded for
	Images           map[string]string
	Image            string // "" with PolicyDurableObject
	Resources        sandbox.Resources
	MaxInstances     int
	RolloutGrace     time.Duration
}
