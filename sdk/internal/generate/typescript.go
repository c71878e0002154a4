package generate

import (
	"fmt"
	"slices"
	"strings"
)

const typescriptHead = "// " + origin

// Camel converts a name from Python's spelling to TypeScript's.
func Camel(snake string) string {
	words := strings.Split(snake, "_")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// TypeScriptTypes returns the module with the types of requests and answers.
func TypeScriptTypes(d Document) string {
	var b strings.Builder
	b.WriteString(typescriptHead)
	for _, name := range d.schemas() {
		s := d.Components.Schemas[name]
		fmt.Fprintf(&b, "\nexport interface %s {\n", name)
		for _, property := range s.properties() {
			docComment(&b, "  ", s.Properties[property].Description)
			optional := "?"
			if slices.Contains(s.Required, property) {
				optional = ""
			}
			fmt.Fprintf(&b, "  %s%s: %s;\n", property, optional, typescriptType(s.Properties[property], ""))
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func docComment(b *strings.Builder, indent, description string) {
	if description != "" {
		fmt.Fprintf(b, "%s/** %s */\n", indent, strings.ReplaceAll(text(description), "*/", "*\u200b/"))
	}
}

func typescriptType(s Schema, module string) string {
	of := s.additional()
	switch {
	case s.Ref != "":
		return module + reference(s.Ref)
	case len(s.Enum) > 0:
		return `"` + strings.Join(s.Enum, `" | "`) + `"`
	case s.Type == "string", s.Type == "boolean", s.Type == "number":
		return s.Type
	case s.Type == "integer":
		return "number"
	case s.Type == "array" && s.Items != nil:
		item := typescriptType(*s.Items, module)
		if strings.Contains(item, "|") {
			item = "(" + item + ")"
		}
		return item + "[]"
	case of != nil:
		return "Record<string, " + typescriptType(*of, module) + ">"
	}
	return "unknown"
}

// TypeScriptOperations returns the module with the generated methods.
func TypeScriptOperations(d Document) (string, error) {
	ops, err := d.generated()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(typescriptHead + `
import { Transport, milliseconds, segment, type CallOptions } from "./transport.js";
import type * as types from "./types.js";

/** Each method is the operation of the same name of the OpenAPI document. */
export class Operations extends Transport {`)
	for i, op := range ops {
		if i > 0 {
			b.WriteString("\n")
		}
		typescriptMethod(&b, op)
	}
	b.WriteString("\n}\n")
	return b.String(), nil
}

func typescriptMethod(b *strings.Builder, op Operation) {
	path, args := op.path, []string{}
	for _, p := range op.parameters("path") {
		args = append(args, p.Name+": string")
		path = strings.ReplaceAll(path, "{"+p.Name+"}", "${segment("+p.Name+")}")
	}
	if op.body() != "" {
		args = append(args, "body: types."+op.body())
	}
	var fields []string
	required := false
	for _, p := range op.parameters("query") {
		optional := "?"
		if p.Required {
			optional, required = "", true
		}
		fields = append(fields, p.Name+optional+": "+typescriptType(p.Schema, "types."))
	}
	if op.async() {
		fields = append(fields, "respondAsync?: boolean")
	}
	if len(fields) > 0 {
		byDefault := " = {}"
		if required {
			byDefault = ""
		}
		args = append(args, "query: { "+strings.Join(fields, "; ")+" }"+byDefault)
	}
	args = append(args, "options: CallOptions = {}")
	answer := "void"
	if op.answer() != "" {
		answer = "types." + op.answer()
	}
	fmt.Fprintf(b, "\n  /** %s. */\n  %s(\n    %s,\n  ): Promise<%s> {\n", text(op.Summary), Camel(snake(op.ID)),
		strings.Join(args, ",\n    "), answer)
	send := []string{"...options"}
	if op.async() {
		if len(fields) > 1 {
			b.WriteString("    const { respondAsync = false, ...rest } = query;\n")
			send = append(send, "query: rest")
		} else {
			b.WriteString("    const { respondAsync = false } = query;\n")
		}
	} else if len(fields) > 0 {
		send = append(send, "query")
	}
	if op.body() != "" {
		send = append(send, "body")
	}
	send = append(send, typescriptFlags(Calls[op.ID], op)...)
	fmt.Fprintf(b, "    return this.call(%q, `%s`, { %s });\n  }", op.method, path, strings.Join(send, ", "))
}

func typescriptFlags(call Call, op Operation) (flags []string) {
	switch {
	case call.Once:
		flags = append(flags, "once: true")
	case call.OnceWith != "":
		flags = append(flags, "once: Boolean(body."+call.OnceWith+")")
	case call.OnceWithout != "":
		flags = append(flags, "once: !body."+call.OnceWithout)
	}
	switch {
	case op.async():
		flags = append(flags, "slow: !respondAsync", "respondAsync")
	case call.Slow:
		flags = append(flags, "slow: true")
	}
	if call.Longer != "" {
		flags = append(flags, "longer: milliseconds(body."+call.Longer+")")
	}
	return flags
}
