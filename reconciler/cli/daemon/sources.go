package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/nearest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// envPrefix is the prefix of each setting's environment variable: SANDBOX_SERVE_TOKEN_FILE sets token-file.
const envPrefix = "SANDBOX_SERVE_"

const flagConfig = "config"

// notSettings are flags that only the command line accepts.
var notSettings = []string{
	flagConfig, "check", "generate-credentials", "help", "in-place", "incomplete", "output", "without-keys",
	"without-saved-data",
}

// origins maps a setting to its source: flag, environment or file. A setting with its default value is absent.
type origins map[string]string

// resolveSettings sets flags from the environment and then from the settings file. A flag of the command line wins. An
// unknown key or variable is an error, so that a misspelt one does not silently leave the default. Errors: Invalid.
func resolveSettings(f *pflag.FlagSet, environ []string) (origins, error) {
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
			return sandbox.Errorf(sandbox.Invalid, "unknown setting in environment variable %s%s", variable, suggestion(f, name))
		}
		if from[name] != "" {
			continue
		}
		if err := f.Set(name, value); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "environment variable %s: %w", variable, err)
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
			return sandbox.Errorf(sandbox.Invalid, "%s line %d: unknown setting %q%s",
				file, key.Line, key.Value, suggestion(f, key.Value))
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

// readSettings returns the alternating keys and values of a settings file. Errors: Invalid.
func readSettings(file string) ([]*yaml.Node, error) {
	r, err := os.Open(file) // #nosec G304 -- the operator names the file
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "reading the settings file: %w", err)
	}
	defer func() { _ = r.Close() }() // only read
	var doc yaml.Node
	dec := yaml.NewDecoder(r)
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil // only comments
	case err != nil:
		return nil, sandbox.Errorf(sandbox.Invalid, "reading the settings file %s: %w", file, err)
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s line %d: want lines of the form `setting: value`", file, root.Line)
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

// setFromNode sets a flag to a scalar, or a flag that may be repeated to a list of scalars.
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

// setList sets a flag that may be repeated to a list.
func setList(f *pflag.FlagSet, name string, texts []string) error {
	list, several := f.Lookup(name).Value.(pflag.SliceValue)
	if !several {
		return errors.New("takes a single value, not a list")
	}
	// Set marks the flag as changed. Replace takes values with commas.
	return errors.Join(f.Set(name, "replaced"), list.Replace(texts))
}

func isSetting(f *pflag.FlagSet, name string) bool {
	return f.Lookup(name) != nil && !slices.Contains(notSettings, name)
}

// suggestion returns the setting that a wrong name resembles, or how to list them all.
func suggestion(f *pflag.FlagSet, name string) string {
	var settings []string
	f.VisitAll(func(flag *pflag.Flag) {
		if isSetting(f, flag.Name) {
			settings = append(settings, flag.Name)
		}
	})
	if meant := nearest.To(name, settings); meant != "" {
		return "; did you mean " + meant + "?"
	}
	return "; serve --help lists them"
}

// redacted maps the settings that may hold a password to functions that hide it.
var redacted = map[string]func(string) string{
	"ledger":        location.Redact,
	"gateway-proxy": location.Redact,
	"state-url":     location.Redact,
}

// effective maps each setting to its value, without passwords.
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

// inBrackets returns a list as one of a settings file.
func inBrackets(texts []string) string {
	scalars := make([]string, len(texts))
	for i, text := range texts {
		scalars[i] = scalar(text)
	}
	return "[" + strings.Join(scalars, ", ") + "]"
}

// scalar returns a text as a value of a settings file, in quotes unless a reader gets the same text without them.
func scalar(text string) string {
	var plain struct {
		Line yaml.Node
		List []yaml.Node
	}
	err := yaml.Unmarshal([]byte("line: "+text+" # x\nlist: ["+text+"] # x\n"), &plain)
	for _, one := range append(plain.List, plain.Line) {
		if err != nil || one.Kind != yaml.ScalarNode || one.Style != 0 || one.Tag == "!!null" || one.Value != text {
			return fmt.Sprintf("%q", text)
		}
	}
	return text
}

// printEffective prints the settings in the form of a settings file, with the source of each as a comment. derived has
// the values of empty ones.
func printEffective(w io.Writer, f *pflag.FlagSet, from origins, derived map[string]string) error {
	values := effective(f)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		line, origin := cmp.Or(values[name], derived[name]), from[name]
		if list, ok := f.Lookup(name).Value.(pflag.SliceValue); ok {
			line = inBrackets(list.GetSlice())
		} else {
			line = scalar(line)
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
