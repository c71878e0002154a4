package reconciler

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// envPrefix begins the environment variable of each setting: SANDBOX_SERVE_TOKEN_FILE is token-file.
const envPrefix = "SANDBOX_SERVE_"

// flagConfig names the file of settings; the commands of serve are no settings.
const flagConfig = "config"

var commandsOnly = []string{flagConfig, "check", "generate-credentials", "help", "output"}

// origins says where the settings that have no default came from, by name.
type origins map[string]string

// settle completes flags, which go before all else, by the environment, and then by the file of settings.
// A key or a variable that names no setting is refused: a misspelt one must not silently take its default.
// Errors: Invalid.
func settle(f *pflag.FlagSet, environ []string) (origins, error) {
	from := origins{}
	f.Visit(func(flag *pflag.Flag) { from[flag.Name] = "flag" })
	if err := fromEnvironment(f, environ, from); err != nil {
		return nil, err
	}
	file, err := f.GetString(flagConfig)
	if err != nil || file == "" {
		return from, err
	}
	return from, fromFile(f, file, from)
}

func fromEnvironment(f *pflag.FlagSet, environ []string, from origins) error {
	for _, pair := range slices.Sorted(slices.Values(environ)) {
		variable, value, _ := strings.Cut(pair, "=")
		name, ours := strings.CutPrefix(variable, envPrefix)
		if !ours {
			continue
		}
		name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		if !isSetting(f, name) && name != flagConfig {
			return sandbox.Errorf(sandbox.Invalid, "the environment variable %s names no setting%s", variable, meant(f, name))
		}
		if from[name] != "" {
			continue
		}
		if err := f.Set(name, value); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "the environment variable %s: %w", variable, err)
		}
		from[name] = "environment"
	}
	return nil
}

func fromFile(f *pflag.FlagSet, file string, from origins) error {
	settings, err := readSettings(file)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(settings); i += 2 {
		key, value := settings[i], settings[i+1]
		if !isSetting(f, key.Value) {
			return sandbox.Errorf(sandbox.Invalid, "%s line %d: %q names no setting%s", file, key.Line, key.Value, meant(f, key.Value))
		}
		if from[key.Value] != "" {
			continue
		}
		if err := setFromNode(f, key.Value, value); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "%s line %d: %s: %w", file, value.Line, key.Value, err)
		}
		from[key.Value] = "file"
	}
	return nil
}

// readSettings returns the keys and values of a file of settings, by turns. Errors: Invalid.
func readSettings(file string) ([]*yaml.Node, error) {
	r, err := os.Open(file) // #nosec G304 -- the operator names the file
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "reading the settings: %w", err)
	}
	defer func() { _ = r.Close() }() // only read
	var doc yaml.Node
	dec := yaml.NewDecoder(r)
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil // nothing but comments
	case err != nil:
		return nil, sandbox.Errorf(sandbox.Invalid, "reading the settings in %s: %w", file, err)
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s line %d: want one `setting: value` a line", file, root.Line)
	}
	seen := map[string]bool{}
	for i := 0; i < len(root.Content); i += 2 {
		key := root.Content[i]
		if seen[key.Value] {
			return nil, sandbox.Errorf(sandbox.Invalid, "%s line %d: duplicate setting %s", file, key.Line, key.Value)
		}
		seen[key.Value] = true
	}
	return root.Content, nil
}

// setFromNode sets a flag to a text, a number, a truth value or, where the flag takes several, a list of them.
func setFromNode(f *pflag.FlagSet, name string, value *yaml.Node) error {
	switch {
	case value.Kind == yaml.ScalarNode && value.Tag != "!!null":
		return f.Set(name, value.Value)
	case value.Kind == yaml.SequenceNode:
		texts := make([]string, len(value.Content))
		for i, one := range value.Content {
			if one.Kind != yaml.ScalarNode || one.Tag == "!!null" {
				return errors.New("want a list of values")
			}
			texts[i] = one.Value
		}
		return setList(f, name, texts)
	default:
		return errors.New("want a value, or a list of values")
	}
}

// setList sets a flag that may be repeated.
func setList(f *pflag.FlagSet, name string, texts []string) error {
	list, several := f.Lookup(name).Value.(pflag.SliceValue)
	if !several {
		return errors.New("takes one value and no list")
	}
	return errors.Join(f.Set(name, ""), list.Replace(texts)) // the flag is noted as set, whatever its texts hold
}

func isSetting(f *pflag.FlagSet, name string) bool {
	return f.Lookup(name) != nil && !slices.Contains(commandsOnly, name)
}

// meant names the setting that a wrong name begins or ends like, if there is one.
func meant(f *pflag.FlagSet, name string) string {
	found := ""
	f.VisitAll(func(flag *pflag.Flag) {
		n := min(4, len(name), len(flag.Name))
		if isSetting(f, flag.Name) && n > 2 && (flag.Name[:n] == name[:n] || strings.ReplaceAll(name, "_", "-") == flag.Name) {
			found += " " + flag.Name
		}
	})
	if found == "" {
		return "; serve --help lists them"
	}
	return "; there is" + found
}

// redacted are the settings that may hold a password, and how they are shown without it.
var redacted = map[string]func(string) string{"ledger": ledger.RedactURL, "gateway-proxy": ledger.RedactURL, "state-url": ledger.RedactURL}

// effective returns each setting with its value, without passwords, by name.
func effective(f *pflag.FlagSet) map[string]string {
	values := map[string]string{}
	f.VisitAll(func(flag *pflag.Flag) {
		if !isSetting(f, flag.Name) {
			return
		}
		value := flag.Value.String()
		if show, ok := redacted[flag.Name]; ok && value != "" {
			value = show(value)
		}
		values[flag.Name] = value
	})
	return values
}

// printEffective prints what is effective in the form of a file of settings, and where it came from.
func printEffective(w io.Writer, f *pflag.FlagSet, from origins) error {
	values := effective(f)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		line, origin := values[name], from[name]
		if list, ok := f.Lookup(name).Value.(pflag.SliceValue); ok {
			line = "[" + strings.Join(list.GetSlice(), ", ") + "]"
		} else if line == "" || strings.ContainsAny(line, "#'\" ") {
			line = fmt.Sprintf("%q", line)
		}
		if origin == "" {
			origin = "default"
		}
		if _, err := fmt.Fprintf(w, "%s: %s # %s\n", name, line, origin); err != nil {
			return err
		}
	}
	return nil
}
