package cloudflare

import (
	"context"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The names of a Worker's bindings, as worker/src/env.ts has them.
const (
	BindingSandbox    = "SANDBOX"            // the Durable Objects, of ClassSandbox
	BindingDatabase   = "DB"                 // D1
	BindingState      = "STATE"              // R2
	BindingSigningKey = "SIGNING_KEY"        // a secret
	BindingInstance   = "INSTANCE"           // plain text: the account's id
	BindingOlderKey   = "SIGNING_KEY_OLDER"  // a secret that is there while keys are rotated
	BindingKeyDigest  = "SIGNING_KEY_DIGEST" // plain text, for us: a secret cannot be read back
	BindingPolicy     = "SCHEDULING_POLICY"  // plain text, for us: PolicyDurableObject, or absent
	// BindingImages begins the names of plain texts, for us: Deployment.Images, which cannot be read back either.
	BindingImages = "START_IMAGE_"

	// ClassSandbox is the class of the Durable Objects.
	ClassSandbox = "Sandbox"
)

// CompatibilityDate selects the rules of the platform that the Worker is written for. Since 2026-04-01 each container
// on a machine of one's own has a process namespace.
const CompatibilityDate = "2026-10-01"

// Deployer deploys what the sandboxes of an environment, or of several that share a deployment, need to one Cloudflare
// account, and deletes it: a Worker with its Durable Objects and a workers.dev route, a container application, a D1
// database and an R2 bucket. All of them have the deployment's name, and are found by it: no record of them is needed.
// Its methods are safe for concurrent use, for different names.
//
// Each method may return, beside the errors it names: Unauthenticated (Cloudflare does not know the token),
// Forbidden (the token lacks permissions, which are named), Unavailable (nothing is known to have changed),
// UnknownOutcome (a change was asked for and its answer was lost), Timeout. After any error the same call may
// be repeated: it goes on where the last one ended.
type Deployer interface {
	// Account returns the account's id, which is the backend instance, once Cloudflare has answered for it.
	// Errors: NotFound, where the account has no workers.dev subdomain.
	Account(ctx context.Context) (string, error)
	// Prepare brings an image to the account's registry, for the environment of a name, as a sandbox needs it: for
	// linux/amd64, with the guest inside. It is named by a digest, in a registry or on the engine that the deployer
	// was given, or by its id there. One in the account's registry that has the guest is taken as it is; what was
	// prepared before is not sent again, nor looked for at its origin. Beside it, the image stays that a deployment of
	// that name has now, and older ones go unless keep, which may be nil, keeps their digests. Errors: Invalid, when it
	// is for another platform; NotFound with ReasonImageNotFound; CapacityExceeded, when the registry has no room; Failed.
	Prepare(ctx context.Context, name, image string, keep func(digest string) bool) (Prepared, error)
	// Deploy makes a deployment, or brings it up to date. What is as wanted is not touched: a Worker that is
	// uploaded resets its Durable Objects. Sandboxes go on with their image and size until they have run for
	// Deployment.RolloutGrace. Errors: Invalid, naming the fields; Conflict, when a Worker of that name is
	// not one of ours; CapacityExceeded; NotFound with ReasonImageNotFound; Failed.
	Deploy(ctx context.Context, d Deployment) (Site, error)
	// Route gives the Worker of a deployment its route, and changes nothing else. Errors: NotFound, when there is none;
	// Conflict as Deploy.
	Route(ctx context.Context, name string) (Site, error)
	// Find looks at a deployment and changes nothing. One that is half made has Site.Missing. Errors:
	// NotFound, when nothing of it is there; Conflict as Deploy.
	Find(ctx context.Context, name string) (Site, error)
	// List returns the deployments of a ledger, those whose names DeploymentName and SharedName make of it, with Name, URL
	// and what is known of the application; a Worker that is known to have no route has no URL. It makes few calls,
	// whatever the number of deployments. The executor asks each of them for its sandboxes, so the sandboxes of one that
	// is left out would count as gone.
	List(ctx context.Context, ledgerID string) ([]Site, error)
	// Doubt says that a Worker does not answer where List says: the next List asks Cloudflare again.
	Doubt(name string)
	// Metered returns what Cloudflare has counted of the containers of deployments, those that it needs to run them
	// included, on each UTC day from from to before to, by name. A deployment without an application is left out.
	Metered(ctx context.Context, names []string, from, to time.Time) (map[string][]driver.Metered, error)
	// RemoveImages removes the images that were prepared for a name. Absent is success.
	RemoveImages(ctx context.Context, name string) error
	// Delete removes a deployment with all its sandboxes, their Durable Objects, all that is in its database and bucket,
	// and the images that were prepared for its name. Absent is success, and so is one that is half made. Errors: Conflict
	// as Deploy.
	Delete(ctx context.Context, name string) error
}

// Prepared is an image that a deployment can have.
type Prepared struct {
	// Reference is Deployment.Image.
	Reference string
	// Sent: the account's registry did not have it.
	Sent bool
}

// Deployment is what an environment, or those that share one, is deployed with.
type Deployment struct {
	// Name as DeploymentName or SharedName returns it.
	Name string
	// Script is the Worker: one ES module (see Script).
	Script []byte
	// Policy is the scheduling policy of its application; "" means PolicyDefault. MaxInstances and RolloutGrace have
	// no effect with PolicyDurableObject, and Resources are only checked.
	Policy SchedulingPolicy
	// Image is what its containers run: a reference with a digest, as Prepare gives it.
	Image string
	// Images are what starts choose from under PolicyDurableObject, Image among them: at most MaxImages, by ImageName.
	Images map[string]string
	// Resources are those of each container: a size of sandbox.InstanceTypes, or one that Cloudflare lets
	// one choose: 1 to 4 vCPU, at least 3 GiB of memory for each and at most 12 GiB, and at most 20 GB of
	// disk (developers.cloudflare.com/containers/platform-details/limits, read 2026-11). PIDs are not limited.
	Resources sandbox.Resources
	// MaxInstances is how many containers may run at once, at least 1.
	MaxInstances int
	// SigningKey is the key that callers of the Worker sign with.
	SigningKey sandbox.Secret
	// OlderKey is a key that the Worker also accepts; "" for none.
	OlderKey sandbox.Secret
	// Variables are given to the Worker in plain text, beside those that each has. Their names must not be theirs.
	Variables map[string]string
	// RolloutGrace is how long a container is left alone from its start on when Image or Resources change, in whole
	// seconds, at most the constant RolloutGrace. Zero replaces it at once.
	RolloutGrace time.Duration
}

// Part is one of the things that a deployment consists of.
type Part string

// The parts.
const (
	PartDatabase    Part = "database"
	PartBucket      Part = "bucket"
	PartWorker      Part = "worker"
	PartSettings    Part = "settings" // the Worker's: its bindings to the other parts, and its compatibility date
	PartApplication Part = "application"
	PartRollout     Part = "rollout" // of the application's last change, which was not begun
	PartRoute       Part = "route"
)

// Site is a deployment as Cloudflare has it.
type Site struct {
	Name string
	// URL is where the Worker answers, "" while it has no route. It may take seconds until all of Cloudflare
	// knows of a new one.
	URL string
	// The ids that Cloudflare gave; "" for a part that is missing. The bucket has its name only.
	DatabaseID, NamespaceID, ApplicationID, VersionID string
	// Missing are the parts that are not there, in the order of their making.
	Missing []Part

	// What it was deployed with; zero where its part is missing.
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
