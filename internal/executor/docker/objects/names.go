// Package objects names and labels the objects that this program creates on an engine. A name says which sandbox or
// environment an object belongs to; labels prove that it is ours.
package objects

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// idPattern matches ids that may be part of a name on the engine.
var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// ValidID reports whether an id may be part of a name on the engine.
func ValidID(id string) bool { return idPattern.MatchString(id) }

// CheckRef rejects ids that cannot be part of a name. Errors: Invalid.
func CheckRef(ref driver.EnvironmentRef) error {
	var f []sandbox.Field
	for name, id := range map[string]string{"ledger_id": ref.LedgerID, "environment_id": ref.EnvironmentID} {
		if !ValidID(id) {
			f = append(f, sandbox.Field{Name: name, Problem: "cannot be part of a name on the engine: " + strconv.Quote(id)})
		}
	}
	if ref.Instance == "" {
		f = append(f, sandbox.Field{Name: "instance", Problem: "must name an engine"})
	}
	return sandbox.InvalidFields("docker: the reference", f)
}

// CheckLedger is CheckRef for an object that belongs to a ledger and not to an environment.
func CheckLedger(ledgerID, instance string) error {
	return CheckRef(driver.EnvironmentRef{LedgerID: ledgerID, EnvironmentID: "any", Instance: instance})
}

// CheckHandle rejects ids that cannot be part of a name. Errors: Invalid.
func CheckHandle(h driver.Handle) error {
	if !ValidID(h.SandboxID) {
		return sandbox.InvalidFields("docker: the handle", []sandbox.Field{
			{Name: "sandbox_id", Problem: "cannot be part of a name on the engine: " + strconv.Quote(h.SandboxID)},
		})
	}
	if h.Companion != "" && !sandbox.IsCompanionName(h.Companion) {
		return sandbox.InvalidFields("docker: the handle", []sandbox.Field{
			{Name: "companion", Problem: "cannot be part of a name on the engine: " + strconv.Quote(h.Companion)},
		})
	}
	return CheckRef(EnvironmentOf(h))
}

// EnvironmentOf returns the environment of a sandbox.
func EnvironmentOf(h driver.Handle) driver.EnvironmentRef {
	return driver.EnvironmentRef{LedgerID: h.LedgerID, EnvironmentID: h.EnvironmentID, Instance: h.Instance}
}

// OwnID is the id of a sandbox or companion in the names of its objects. It is unique in a ledger, because sandbox ids
// have no dots.
func OwnID(h driver.Handle) string {
	if h.Companion == "" {
		return h.SandboxID
	}
	return h.SandboxID + "." + h.Companion
}

// HandleOf returns the handle of an OwnID. Its environment is unknown.
func HandleOf(ledgerID, instance, id string) driver.Handle {
	sandboxID, companion, _ := strings.Cut(id, ".")
	return driver.Handle{LedgerID: ledgerID, SandboxID: sandboxID, Instance: instance, Companion: companion}
}

// SandboxName is the name of the container of a sandbox or companion.
func SandboxName(h driver.Handle) string { return "sandbox-" + h.LedgerID + "-" + OwnID(h) }

// PopulatorName is the name of the container that fills the volumes of a sandbox.
func PopulatorName(h driver.Handle) string { return SandboxName(h) + "-carrier" }

// WorkspaceVolume is the name of the volume at /workspace.
func WorkspaceVolume(h driver.Handle) string { return SandboxName(h) + "-workspace" }

// DataVolume is the name of the volume at /data.
func DataVolume(h driver.Handle) string { return SandboxName(h) + "-data" }

// LeaseVolume is the name of the volume that holds the lease of a pool's sandbox.
func LeaseVolume(h driver.Handle) string { return SandboxName(h) + "-lease" }

// ImageVolume is the name of the volume at a path that the image declares as a volume.
func ImageVolume(h driver.Handle, target string) string {
	return SandboxName(h) + imageVolume + Hash(target)
}

// IsImageVolume reports whether a name is an ImageVolume of h.
func IsImageVolume(name string, h driver.Handle) bool {
	return strings.HasPrefix(name, SandboxName(h)+imageVolume)
}

const imageVolume = "-image-"

// NetworkName is the name of a sandbox's own network.
func NetworkName(h driver.Handle) string { return SandboxName(h) + "-network" }

// GuestVolume is named by content, so that a new release never uses an old guest's volume.
func GuestVolume(ref driver.EnvironmentRef, guestHash string) string {
	return "sandbox-" + ref.LedgerID + "-env-" + ref.EnvironmentID + "-" + guestHash
}

// GatewayName is the name of the container of an environment's gateway.
func GatewayName(ref driver.EnvironmentRef) string {
	return "sandbox-" + ref.LedgerID + "-env-" + ref.EnvironmentID + "-gateway"
}

// EgressVolume is the name of the volume with the gateway's data and a directory for each sandbox.
func EgressVolume(ref driver.EnvironmentRef) string {
	return "sandbox-" + ref.LedgerID + "-env-" + ref.EnvironmentID + "-egress"
}

// RelayName is the name of the container of a ledger's relay.
func RelayName(ledgerID string) string { return "sandbox-" + ledgerID + "-relay" }

// ChannelsVolume is the name of the volume with the relay's directories for sandboxes.
func ChannelsVolume(ledgerID string) string { return "sandbox-" + ledgerID + "-channels" }

// GatewayImage is named by its content, like a template.
func GatewayImage(ref driver.EnvironmentRef, hash string) string {
	return "sandbox-" + ref.LedgerID + "-gateway:" + ref.EnvironmentID + "-" + hash
}

// TemplateImage is named by its content. Environment ids are valid in a tag but not in a repository.
func TemplateImage(ref driver.EnvironmentRef, hash string) (repository, tag string) {
	return "sandbox-" + ref.LedgerID, ref.EnvironmentID + "-" + hash
}

// Hash identifies a content in names: 12 hexadecimal digits of the SHA-256 of the parts.
func Hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = io.WriteString(h, p) // writing to a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}
