package sandbox

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
)

// SecretsDir holds a sandbox's secrets, one file each. Only the sandbox's user may read them.
const SecretsDir = "/run/secrets"

// Limits of an environment's secrets.
const (
	MaxSecrets     = 64
	MaxSecretBytes = 64 << 10 // per secret
)

// Secret is a value that must not be shown. Its JSON form is the value: requests contain it, answers never do.
type Secret string

// String hides the value from printing.
func (Secret) String() string { return "(secret)" }

// GoString hides the value from %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the value from logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

var secretName = pattern(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}$`)

// WithDefaults returns the request with all defaults filled in. Secrets then names each secret that has a
// value.
func (p PutEnvironment) WithDefaults() PutEnvironment {
	p.EnvironmentSpec = p.EnvironmentSpec.WithDefaults()
	return p.withSecretNames()
}

// withSecretNames adds the names of SecretValues to Secrets, sorted.
func (p PutEnvironment) withSecretNames() PutEnvironment {
	names := append(slices.Clone(p.Secrets), slices.Collect(maps.Keys(p.SecretValues))...)
	slices.Sort(names)
	p.Secrets = slices.Compact(names)
	return p
}

// secretFields returns the problems of the request's secrets. It never repeats a value.
func (p PutEnvironment) secretFields() (f []Field) {
	for _, name := range p.Secrets {
		if !secretName().MatchString(name) {
			f = append(f, Field{"secrets", fmt.Sprintf("%q is not a valid name: it must be a file name of 1 to 63 letters, "+
				"digits, '.', '_' and '-', and not start with '.' or '-'", name)})
		}
	}
	if len(p.Secrets) > MaxSecrets {
		f = append(f, Field{"secrets", fmt.Sprintf("must be at most %d, not %d", MaxSecrets, len(p.Secrets))})
	}
	for _, name := range slices.Sorted(maps.Keys(p.SecretValues)) {
		n := len(p.SecretValues[name])
		if n == 0 || n > MaxSecretBytes {
			f = append(f, Field{"secret_values." + name, fmt.Sprintf("must be 1 to %d bytes long, not %d", MaxSecretBytes, n)})
		}
	}
	return f
}
