package objects

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Labels of every object that this program creates. An engine cannot change a label, so they hold only constant values.
const (
	labelPrefix      = "io.sandbox-lease."
	LabelProvider    = labelPrefix + "provider"
	LabelLedger      = labelPrefix + "ledger"
	LabelEnvironment = labelPrefix + "environment"
	LabelRole        = labelPrefix + "role"
	LabelSandbox     = labelPrefix + "sandbox"
	// LabelCompanion is the name of the companion that an object belongs to. labelCompanions, of a sandbox's container,
	// has the names of its companions, separated by commas.
	LabelCompanion  = labelPrefix + "companion"
	labelCompanions = labelPrefix + "companions"
	// LabelInstance is the engine that the object was created on.
	LabelInstance   = labelPrefix + "instance"
	LabelLease      = labelPrefix + "lease"
	LabelGeneration = labelPrefix + "generation"
	LabelAgent      = labelPrefix + "agent"
	// LabelImage is the image reference in the specification, LabelImageID the id that it had on the engine.
	LabelImage   = labelPrefix + "image"
	LabelImageID = labelPrefix + "image-id"
	// LabelMounts are the host directories that the specification mounts, as a JSON list.
	LabelMounts = labelPrefix + "mounts"
	// LabelBare, of a template, is "true" if the template has only the guest, and no content for the volumes of one
	// sandbox.
	LabelBare = labelPrefix + "bare"
	// LabelOfLease is the prefix of the lease's labels, as they were when the object was created. It separates them from
	// labels that other programs on the host act on.
	LabelOfLease = labelPrefix + "label."
)

// ProviderName is the value of LabelProvider.
const ProviderName = "terraform-provider-sandbox"

// Role is the purpose of an object.
type Role string

// The roles of containers, volumes, networks and images.
const (
	RoleSandbox     Role = "sandbox"
	RoleCompanion   Role = "companion" // a container that shares the network of a sandbox
	RolePopulator   Role = "carrier"   // a container that is never started
	RoleGuest       Role = "guest"
	RoleTemplate    Role = "seed"
	RoleWorkspace   Role = "workspace"
	RoleData        Role = "data"
	RoleLease       Role = "lease"        // holds the lease of a pool's sandbox
	RoleImageVolume Role = "image-volume" // at a path that the image declares as a volume
	RoleNetwork     Role = "network"
	RoleGateway     Role = "gateway"
	RoleEgress      Role = "egress"        // the volume with the gateway's sockets
	RoleProgram     Role = "gateway-image" // holds the gateway's program
	RoleWitness     Role = "witness"       // distinguishes the engine from its clones
	RoleRelay       Role = "relay"         // carries connections to sandboxes
	RoleChannels    Role = "channels"      // the volume with the relay's sockets
	RoleRelayCode   Role = "relay-image"   // holds the relay's program
)

// RoleOf returns the role of the container of a sandbox or companion.
func RoleOf(h driver.Handle) Role {
	if h.Companion == "" {
		return RoleSandbox
	}
	return RoleCompanion
}

// EnvironmentLabels are the labels of an environment's object.
func EnvironmentLabels(ref driver.EnvironmentRef, r Role) map[string]string {
	return map[string]string{
		LabelProvider:    ProviderName,
		LabelLedger:      ref.LedgerID,
		LabelEnvironment: ref.EnvironmentID,
		LabelInstance:    ref.Instance,
		LabelRole:        string(r),
	}
}

// HandleIn returns the handle in the labels of an object.
func HandleIn(labels map[string]string) driver.Handle {
	return driver.Handle{
		LedgerID: labels[LabelLedger], EnvironmentID: labels[LabelEnvironment],
		SandboxID: labels[LabelSandbox], Instance: labels[LabelInstance], Companion: labels[LabelCompanion],
	}
}

// LedgerLabels are the labels of an object that belongs to a ledger and not to an environment.
func LedgerLabels(ledgerID, instance string, r Role) map[string]string {
	return map[string]string{
		LabelProvider: ProviderName,
		LabelLedger:   ledgerID,
		LabelInstance: instance,
		LabelRole:     string(r),
	}
}

// HandleLabels are the labels of an object of a sandbox or companion.
func HandleLabels(h driver.Handle, r Role) map[string]string {
	l := EnvironmentLabels(EnvironmentOf(h), r)
	l[LabelSandbox] = h.SandboxID
	if h.Companion != "" {
		l[LabelCompanion] = h.Companion
	}
	return l
}

// SandboxLabels are the labels of the container of a sandbox or companion. imageID is the id of its image.
func SandboxLabels(spec driver.SandboxSpec, imageID string) map[string]string {
	l := HandleLabels(spec.Handle, RoleOf(spec.Handle))
	l[LabelLease] = spec.LeaseID
	l[LabelGeneration] = strconv.FormatInt(spec.Generation, 10)
	l[LabelAgent] = spec.AgentDID
	l[LabelImage] = spec.Image
	l[LabelImageID] = imageID
	if len(spec.Mounts) > 0 {
		l[LabelMounts] = mountsLabel(spec.Mounts)
	}
	if len(spec.Companions) > 0 {
		l[labelCompanions] = strings.Join(spec.Companions.Names(), ",")
	}
	return WithLeaseLabels(l, spec)
}

// WithLeaseLabels returns labels with those of the lease added.
func WithLeaseLabels(labels map[string]string, spec driver.SandboxSpec) map[string]string {
	all := maps.Clone(labels)
	for key, value := range spec.Labels {
		all[LabelOfLease+key] = value
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

// CompanionNames returns the names of companions in the labels of a sandbox's container.
func CompanionNames(labels map[string]string) []string {
	if labels[labelCompanions] == "" {
		return nil
	}
	return strings.Split(labels[labelCompanions], ",")
}

// Filter selects objects with all of the labels.
func Filter(labels map[string]string) dockerapi.Filters {
	f := dockerapi.NewFilters()
	for k, v := range labels {
		f.Add("label", k+"="+v)
	}
	return f
}
