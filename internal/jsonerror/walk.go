package jsonerror

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/nearest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// walk returns the first part of a valid JSON text that does not fit a type, nil if it finds none.
func walk(path string, text []byte, t reflect.Type) *Error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	text = bytes.TrimSpace(text)
	if string(text) == "null" { // leaves the default
		return nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		if text[0] == '{' && !decodesItself(t) {
			return walkObject(path, text, t)
		}
	case reflect.Slice, reflect.Array:
		if text[0] == '[' && !decodesItself(t) {
			return walkList(path, text, t.Elem())
		}
	default: // a value without parts
	}
	if err := json.Unmarshal(text, reflect.New(t).Interface()); err != nil {
		return &Error{Field: path, Problem: valueProblem(err, text, t)}
	}
	return nil
}

func walkList(path string, text []byte, element reflect.Type) *Error {
	var elements []json.RawMessage
	if err := json.Unmarshal(text, &elements); err != nil {
		return &Error{Field: path, Problem: err.Error()}
	}
	for i, one := range elements {
		if e := walk(fmt.Sprintf("%s[%d]", path, i), one, element); e != nil {
			return e
		}
	}
	return nil
}

// walkObject goes through the fields in their order in the text.
func walkObject(path string, text []byte, t reflect.Type) *Error {
	fields := fieldsOf(t)
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil { // {
		return &Error{Field: path, Problem: err.Error()}
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return &Error{Field: path, Problem: err.Error()}
		}
		name, _ := key.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return &Error{Field: join(path, name), Problem: err.Error()}
		}
		at, of := join(path, name), reflect.Type(nil)
		if t.Kind() == reflect.Map {
			of = t.Elem()
		} else if known := spelled(name, fields); known != "" {
			at, of = join(path, known), fields[known]
		} else {
			return &Error{Field: at, Problem: unknown(name, fields)}
		}
		if e := walk(at, value, of); e != nil {
			return e
		}
	}
	return nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// spelled returns the field that encoding/json decodes a name to, which it compares without case. It returns "" for an
// unknown name.
func spelled(name string, fields map[string]reflect.Type) string {
	if _, ok := fields[name]; ok {
		return name
	}
	for known := range fields {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	return ""
}

// fieldsOf returns the fields of a struct by JSON name, with those of the structs that it embeds.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	fields := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return fields
	}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case embeds(f):
			for inner, of := range fieldsOf(f.Type) {
				if _, outer := fields[inner]; !outer {
					fields[inner] = of
				}
			}
		case !f.IsExported() || f.Tag.Get("json") == "-":
		case name == "":
			fields[f.Name] = f.Type
		default:
			fields[name] = f.Type
		}
	}
	return fields
}

// embeds reports whether JSON has the fields of a field's struct in place of the field.
func embeds(f reflect.StructField) bool {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return f.Anonymous && name == "" && t.Kind() == reflect.Struct
}

// pathOf returns the JSON path of encoding/json's, which has the Go names of embedded structs in it.
func pathOf(goPath string, t reflect.Type) string {
	var path []string
	for name := range strings.SplitSeq(goPath, ".") {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Map:
			t = t.Elem()
		case reflect.Struct:
			if f, ok := t.FieldByName(name); ok && embeds(f) {
				t = f.Type
				continue
			}
			if of, ok := fieldsOf(t)[name]; ok {
				t = of
			}
		default: // has no fields
		}
		path = append(path, name)
	}
	return strings.Join(path, ".")
}

// shownFields limits the fields that an error lists.
const shownFields = 16

// unknown is the problem of a field that an object does not have.
func unknown(name string, fields map[string]reflect.Type) string {
	names := slices.Sorted(maps.Keys(fields))
	if nearest.To(name, names) == "" && len(names) > 0 && len(names) <= shownFields {
		return "is an unknown field; the fields are " + strings.Join(names, ", ")
	}
	return unlike(name, names)
}

// unlike is the problem of a field of an object whose fields may be others than these.
func unlike(name string, names []string) string {
	if meant := nearest.To(name, names); meant != "" {
		return "is an unknown field; did you mean " + meant + "?"
	}
	return "is an unknown field"
}

// valueProblem says why a text without parts is not of a type.
func valueProblem(err error, text []byte, t reflect.Type) string {
	if text[0] == '"' && t != reflect.TypeFor[time.Time]() && decodesItself(t) {
		return strings.TrimPrefix(err.Error(), "json: ") // the type's own
	}
	kind := map[byte]string{'{': "object", '[': "list", '"': "string", 't': "bool", 'f': "bool"}[text[0]]
	if kind == "" {
		kind = "number " + string(text)
	}
	return mustBe(t, kind)
}

// mustBe says what a value of a type must be, for a value of another kind.
func mustBe(t reflect.Type, got string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[sandbox.Duration]():
		return `must be a duration such as "1h30m"`
	case reflect.TypeFor[sandbox.NanoUSD]():
		return `must be an amount of US dollars as a string such as "15.61"`
	case reflect.TypeFor[time.Time]():
		return `must be a time such as "2026-01-02T15:04:05Z"`
	case reflect.TypeFor[[]byte]():
		return "must be a string in base64"
	}
	switch kind := t.Kind(); kind {
	case reflect.String:
		return "must be a string"
	case reflect.Bool:
		return "must be true or false"
	case reflect.Slice, reflect.Array:
		return "must be a list"
	case reflect.Float32, reflect.Float64:
		return "must be a number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return number(got, kind)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return number(got, kind)
	case reflect.Struct, reflect.Map:
		if !decodesItself(t) {
			return "must be an object"
		}
	}
	return "must not be a JSON " + got
}

// number says what is wrong with a number that an integer cannot hold.
func number(got string, kind reflect.Kind) string {
	text, isNumber := strings.CutPrefix(got, "number ")
	switch {
	case !isNumber:
		return "must be a number"
	case strings.ContainsAny(text, ".eE"):
		return "must be a whole number"
	case strings.HasPrefix(text, "-") && strings.HasPrefix(kind.String(), "uint"):
		return "must not be negative"
	}
	return "is too large a number"
}

// decodesItself reports whether a type has its own form in JSON.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
