package console

import (
	"bytes"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
)

// printYAML prints what -o json would print, as YAML: with the same names, in the same order.
func printYAML(w io.Writer, v any) error {
	var text bytes.Buffer
	if err := printable.NewEncoder(&text).Encode(v); err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text.Bytes(), &doc); err != nil { // JSON is YAML
		return err
	}
	restyle(&doc)
	enc := yaml.NewEncoder(printable.NewWriter(w))
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return err
	}
	return enc.Close()
}

// restyle writes values in YAML's own style. Text that a terminal could interpret stays in double quotes, where the
// writer may escape it.
func restyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && n.Value != printable.Text(n.Value) {
		n.Style = yaml.DoubleQuotedStyle
	}
	if len(n.Content) == 0 {
		n.Style |= yaml.FlowStyle // [] and {}
	}
	for _, below := range n.Content {
		restyle(below)
	}
}
