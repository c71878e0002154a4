package generate

import (
	"fmt"
	"slices"
	"strings"
)

const pythonHead = "# " + origin

// origin is the header of a generated file.
const origin = "Generated from the OpenAPI document by \"go test ./sdk -run DocumentSays -update\". Do not edit.\n"

func snake(id string) string { return strings.ReplaceAll(id, "-", "_") }

// PythonTypes returns the module with the types of requests and answers.
func PythonTypes(d Document) string {
	var b strings.Builder
	b.WriteString(pythonHead + `"""The objects of the API, as its OpenAPI document has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired
`)
	for _, name := range d.schemas() {
		s := d.Components.Schemas[name]
		if slices.ContainsFunc(s.properties(), isKeyword) {
			fmt.Fprintf(&b, "\n%s = TypedDict(\n    %q,\n    {\n", name, name)
			for _, property := range s.properties() {
				comment(&b, "        # ", s.Properties[property].Description)
				fmt.Fprintf(&b, "        %q: %q,\n", property, pythonProperty(s, property))
			}
			b.WriteString("    },\n)\n")
			continue
		}
		fmt.Fprintf(&b, "\n\nclass %s(TypedDict):\n", name)
		if len(s.Properties) == 0 {
			b.WriteString("    pass\n")
		}
		for _, property := range s.properties() {
			comment(&b, "    # ", s.Properties[property].Description)
			fmt.Fprintf(&b, "    %s: %s\n", property, pythonProperty(s, property))
		}
		b.WriteString("\n")
	}
	return squeeze(b.String(), 3)
}

func isKeyword(name string) bool {
	return slices.Contains([]string{"as", "from", "in", "is", "class"}, name)
}

func comment(b *strings.Builder, prefix, description string) {
	const width = 110
	line := ""
	for _, word := range strings.Fields(description) {
		if line != "" && len(prefix)+len(line)+1+len(word) > width {
			b.WriteString(prefix + line + "\n")
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	if line != "" {
		b.WriteString(prefix + line + "\n")
	}
}

func pythonProperty(s Schema, property string) string {
	t := pythonType(s.Properties[property], "")
	if slices.Contains(s.Required, property) {
		return t
	}
	return "NotRequired[" + t + "]"
}

// pythonType returns a type; module is the prefix of the document's own types.
func pythonType(s Schema, module string) string {
	of := s.additional()
	switch {
	case s.Ref != "":
		return module + reference(s.Ref)
	case len(s.Enum) > 0:
		return "Literal['" + strings.Join(s.Enum, "', '") + "']"
	case s.Type == "string":
		return "str"
	case s.Type == "integer":
		return "int"
	case s.Type == "number":
		return "float"
	case s.Type == "boolean":
		return "bool"
	case s.Type == "array" && s.Items != nil:
		return "list[" + pythonType(*s.Items, module) + "]"
	case of != nil:
		return "dict[str, " + pythonType(*of, module) + "]"
	}
	return "Any"
}

// PythonOperations returns the module with the generated methods.
func PythonOperations(d Document) (string, error) {
	ops, err := d.generated()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(pythonHead + `"""The operations of the API whose requests and answers are JSON."""

from __future__ import annotations

from typing import Optional

from . import types
from ._transport import Transport, seconds, segment


class Operations(Transport):
    """Each method is the operation of the same name of the OpenAPI document."""
`)
	for _, op := range ops {
		pythonMethod(&b, op)
	}
	return b.String(), nil
}

func pythonMethod(b *strings.Builder, op Operation) {
	call := Calls[op.ID]
	args, query := []string{"self"}, []string{}
	path := op.path
	for _, p := range op.parameters("path") {
		args = append(args, p.Name+": str")
		path = strings.ReplaceAll(path, "{"+p.Name+"}", "{segment("+p.Name+")}")
	}
	if op.body() != "" {
		args = append(args, "body: types."+op.body())
	}
	var keywords []string
	for _, p := range op.parameters("query") {
		t := pythonType(p.Schema, "types.")
		name := p.Name
		if isKeyword(name) {
			name += "_"
		}
		if p.Required {
			keywords = append([]string{name + ": " + t}, keywords...)
		} else {
			keywords = append(keywords, name+": Optional["+t+"] = None")
		}
		query = append(query, fmt.Sprintf("%q: %s", p.Name, name))
	}
	if op.async() {
		keywords = append(keywords, "respond_async: bool = False")
	}
	if len(keywords) > 0 {
		args = append(append(args, "*"), keywords...)
	}
	answer := "None"
	if op.answer() != "" {
		answer = "types." + op.answer()
	}
	fmt.Fprintf(b, "\n    def %s(\n        %s,\n    ) -> %s:\n        \"\"\"%s.\"\"\"\n", snake(op.ID),
		strings.Join(args, ",\n        "), answer, text(op.Summary))
	send := []string{fmt.Sprintf("%q", op.method), "f\"" + path + "\""}
	if len(query) > 0 {
		send = append(send, "query={"+strings.Join(query, ", ")+"}")
	}
	if op.body() != "" {
		send = append(send, "body=body")
	}
	send = append(send, pythonFlags(call, op)...)
	result := "return "
	if answer == "None" {
		result = ""
	}
	fmt.Fprintf(b, "        %sself._call(\n            %s,\n        )\n", result, strings.Join(send, ",\n            "))
}

func pythonFlags(call Call, op Operation) (flags []string) {
	switch {
	case call.Once:
		flags = append(flags, "once=True")
	case call.OnceWith != "":
		flags = append(flags, fmt.Sprintf("once=bool(body.get(%q))", call.OnceWith))
	case call.OnceWithout != "":
		flags = append(flags, fmt.Sprintf("once=not body.get(%q)", call.OnceWithout))
	}
	switch {
	case op.async():
		flags = append(flags, "slow=not respond_async", "respond_async=respond_async")
	case call.Slow:
		flags = append(flags, "slow=True")
	}
	if call.Longer != "" {
		flags = append(flags, fmt.Sprintf("longer=seconds(body.get(%q))", call.Longer))
	}
	return flags
}

// squeeze limits the number of consecutive newlines.
func squeeze(s string, most int) string {
	for strings.Contains(s, strings.Repeat("\n", most+1)) {
		s = strings.ReplaceAll(s, strings.Repeat("\n", most+1), strings.Repeat("\n", most))
	}
	return strings.TrimRight(s, "\n") + "\n"
}
