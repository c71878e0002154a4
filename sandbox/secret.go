package sandbox

import (
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
)

// SecretsDir is where a sandbox finds its secrets, each a file that only its user may read.
const SecretsDir = "/run/secrets"

// Limits of an environment's secrets.
const (
	MaxSecrets     = 64
	MaxSecretBytes = 64 << 10 // of one
)

// Secret is a value that must not be shown. Its JSON form is the value: it travels in requests, and
// stands in no answer.
type Secret string

// String hides the value from whatever prints it.
func (Secret) String() string { return "(secret)" }

// GoString hides the value from %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue hides the value from logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

var secretName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}$`)

// WithDefaults returns the request with every default filled in, and every secret named that it has
// a value for.
func (p PutEnvironment) WithDefaults() PutEnvironment {
	p.EnvironmentSpec = p.EnvironmentSpec.WithDefaults()
	return p.withSecretNames()
}

// withSecretNames returns the request with every secret named that it has a value for, in order.
func (p PutEnvironment) withSecretNames() PutEnvironment {
	names := append(slices.Clone(p.Secrets), slices.Collect(maps.Keys(p.SecretValues))...)
	slices.Sort(names)
	p.Secrets = slices.Compact(names)
	return p
}

// secretFields returns what is wrong with the secrets of a request. It never repeats a value.
func (p PutEnvironment) secretFields() (f []Field) {
	for _, name := range p.Secrets {
		if !secretName.MatchString(name) {
			f = append(f, Field{"secrets", fmt.Sprintf("%q is no name of a secret: it must be a file name of 1 to 63 letters, digits, '.', '_' and '-', that does not begin with '.' or '-'", name)})
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
