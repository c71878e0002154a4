package objects

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
)

// Dependent describes an object by its labels.
func Dependent(name string, labels map[string]string, created time.Time) driver.Dependent {
	return driver.Dependent{
		Handle: HandleIn(labels), Kind: driver.DependentKind(labels[LabelRole]), Name: name, CreatedAt: created.UTC(),
	}
}

// DependentLabels are the labels that an object must still have to be removed.
func DependentLabels(l driver.Dependent) map[string]string {
	labels := EnvironmentLabels(EnvironmentOf(l.Handle), Role(l.Kind))
	if l.SandboxID != "" {
		labels[LabelSandbox] = l.SandboxID
	}
	if l.Companion != "" {
		labels[LabelCompanion] = l.Companion
	}
	return labels
}

// OfLedger reports whether an object belongs to the ledger and not to an environment.
func OfLedger(labels map[string]string) bool {
	switch Role(labels[LabelRole]) {
	case RoleRelay, RoleChannels, RoleRelayCode, RoleWitness:
		return true
	}
	return false
}
