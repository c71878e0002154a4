package docker

import (
	"encoding/json"
	"maps"
	"regexp"
	"strconv"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Labels of everything that this package creates. An engine cannot change a label, so they hold only constant
// values.
const (
	labelPrefix      = "io.sandbox-lease."
	labelProvider    = labelPrefix + "provider"
	labelLedger      = labelPrefix + "ledger"
	labelEnvironment = labelPrefix + "environment"
	labelRole        = labelPrefix + "role"
	labelSandbox     = labelPrefix + "sandbox"
	// labelCompanion is the name of the companion that an object belongs to. labelCompanions, of a sandbox's container,
	// are the names of its companions, separated by commas.
	labelCompanion  = labelPrefix + "companion"
	labelCompanions = labelPrefix + "companions"
	// labelInstance is the engine that the object was created on.
	labelInstance   = labelPrefix + "instance"
	labelLease      = labelPrefix + "lease"
	labelGeneration = labelPrefix + "generation"
	labelAgent      = labelPrefix + "agent"
	// labelImage is the image as the specification names it, labelImageID the id that it had on the engine.
	labelImage   = labelPrefix + "image"
	labelImageID = labelPrefix + "image-id"
	// labelMounts are the host directories that the specification mounts, as a JSON list.
	labelMounts = labelPrefix + "mounts"
	// labelOfLease begins the labels of the lease, as they were when the object was created. The prefix keeps them
	// apart from labels that other programs on the host act on.
	labelOfLease = labelPrefix + "label."
)

const providerName = "terraform-provider-sandbox"

// role is the purpose of an object.
type role string

const (
	roleSandbox   role = "sandbox"
	roleCompanion role = "companion" // a container that shares the network of a sandbox
	rolePopulator role = "carrier"   // a container that is never started
	roleGuest     role = "guest"
	roleTemplate  role = "seed"
	roleWorkspace role = "workspace"
	roleData      role = "data"
	roleLease     role = "lease" // holds the lease of a pool's sandbox
	roleNetwork   role = "network"
	roleGateway   role = "gateway"
	roleEgress    role = "egress"        // the volume with the gateway's sockets
	roleProgram   role = "gateway-image" // holds the gateway's program
	roleWitness   role = "witness"       // distinguishes the engine from its clones
	roleRelay     role = "relay"         // carries connections to sandboxes
	roleChannels  role = "channels"      // the volume with the relay's sockets
	roleRelayCode role = "relay-image"   // holds the relay's program
)

// idPattern is the form of ids that may be part of a name on the engine.
var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// checkRef rejects ids that cannot be part of a name.
func checkRef(ref driver.EnvironmentRef) error {
	var f []sandbox.Field
	for name, id := range map[string]string{"ledger_id": ref.LedgerID, "environment_id": ref.EnvironmentID} {
		if !idPattern.MatchString(id) {
			f = append(f, sandbox.Field{Name: name, Problem: "cannot be part of a name on the engine: " + strconv.Quote(id)})
		}
	}
	if ref.Instance == "" {
		f = append(f, sandbox.Field{Name: "instance", Problem: "must name an engine"})
	}
	return sandbox.InvalidFields("docker: the reference", f)
}

func checkHandle(h driver.Handle) error {
	if !idPattern.MatchString(h.SandboxID) {
		return sandbox.InvalidFields("docker: the handle", []sandbox.Field{
			{Name: "sandbox_id", Problem: "cannot be part of a name on the engine: " + strconv.Quote(h.SandboxID)},
		})
	}
	if h.Companion != "" && !sandbox.IsCompanionName(h.Companion) {
		return sandbox.InvalidFields("docker: the handle", []sandbox.Field{
			{Name: "companion", Problem: "cannot be part of a name on the engine: " + strconv.Quote(h.Companion)},
		})
	}
	return checkRef(environmentOf(h))
}

func environmentOf(h driver.Handle) driver.EnvironmentRef {
	return driver.EnvironmentRef{LedgerID: h.LedgerID, EnvironmentID: h.EnvironmentID, Instance: h.Instance}
}

// sandboxName is the name of the container of a sandbox, or of a companion.
func sandboxName(h driver.Handle) string     { return "sandbox-" + h.LedgerID + "-" + ownID(h) }
func populatorName(h driver.Handle) string   { return sandboxName(h) + "-carrier" }
func workspaceVolume(h driver.Handle) string { return sandboxName(h) + "-workspace" }
func dataVolume(h driver.Handle) string      { return sandboxName(h) + "-data" }
func leaseVolume(h driver.Handle) string     { return sandboxName(h) + "-lease" }
func networkName(h driver.Handle) string     { return sandboxName(h) + "-network" }

// guestVolume is named by content, so that a new release never uses the volume of an old guest.
func guestVolume(ref driver.EnvironmentRef, guestHash string) string {
	return "sandbox-" + ref.LedgerID + "-env-" + ref.EnvironmentID + "-" + guestHash
}

func gatewayName(ref driver.EnvironmentRef) string {
	return "sandbox-" + ref.LedgerID + "-env-" + ref.EnvironmentID + "-gateway"
}

func egressVolume(ref driver.EnvironmentRef) string {
	return "sandbox-" + ref.LedgerID + "-env-" + ref.EnvironmentID + "-egress"
}

// gatewayImage is named by its content, like a template.
func gatewayImage(ref driver.EnvironmentRef, hash string) string {
	return "sandbox-" + ref.LedgerID + "-gateway:" + ref.EnvironmentID + "-" + hash
}

// templateImage is named by its content. Environment ids are valid in a tag but not in a repository.
func templateImage(ref driver.EnvironmentRef, hash string) (repository, tag string) {
	return "sandbox-" + ref.LedgerID, ref.EnvironmentID + "-" + hash
}

func environmentLabels(ref driver.EnvironmentRef, r role) map[string]string {
	return map[string]string{
		labelProvider:    providerName,
		labelLedger:      ref.LedgerID,
		labelEnvironment: ref.EnvironmentID,
		labelInstance:    ref.Instance,
		labelRole:        string(r),
	}
}

func handleLabels(h driver.Handle, r role) map[string]string {
	l := environmentLabels(environmentOf(h), r)
	l[labelSandbox] = h.SandboxID
	if h.Companion != "" {
		l[labelCompanion] = h.Companion
	}
	return l
}

func sandboxLabels(spec driver.SandboxSpec, imageID string) map[string]string {
	l := handleLabels(spec.Handle, roleOf(spec.Handle))
	l[labelLease] = spec.LeaseID
	l[labelGeneration] = strconv.FormatInt(spec.Generation, 10)
	l[labelAgent] = spec.AgentDID
	l[labelImage] = spec.Image
	l[labelImageID] = imageID
	if len(spec.Mounts) > 0 {
		l[labelMounts] = mountsLabel(spec.Mounts)
	}
	if len(spec.Companions) > 0 {
		l[labelCompanions] = strings.Join(spec.Companions.Names(), ",")
	}
	return withLeaseLabels(l, spec)
}

// withLeaseLabels returns labels and those of the lease.
func withLeaseLabels(labels map[string]string, spec driver.SandboxSpec) map[string]string {
	all := maps.Clone(labels)
	for key, value := range spec.Labels {
		all[labelOfLease+key] = value
	}
	return all
}

// mountsLabel encodes the sources as JSON, which never fails for strings.
func mountsLabel(mounts []sandbox.Mount) string {
	sources := make([]string, len(mounts))
	for i, m := range mounts {
		sources[i] = m.Source
	}
	text, _ := json.Marshal(sources)
	return string(text)
}

// checkLabels checks that an object with one of our names has our labels. Those of a lease may have changed
// since. Errors: Conflict if something else created it, Unavailable with ReasonOtherInstance if it was created
// on another engine.
func (e *Executor) checkLabels(kind, name string, have, want map[string]string) error {
	for k, v := range want {
		if k != labelInstance && !strings.HasPrefix(k, labelOfLease) && have[k] != v {
			return sandbox.Errorf(sandbox.Conflict,
				"docker: %s %s exists without our labels, so another program created it; remove or rename it", kind, name)
		}
	}
	if have[labelInstance] != want[labelInstance] {
		return e.otherInstance(have[labelInstance], want[labelInstance])
	}
	return nil
}

func labelFilter(labels map[string]string) dockerapi.Filters {
	f := dockerapi.NewFilters()
	for k, v := range labels {
		f.Add("label", k+"="+v)
	}
	return f
}
