package strictjson

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/nearest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits of an error, so that a large wrong body does not cause a large answer.
const (
	maxProblems = 16
	maxName     = 64 // bytes of an unknown name that are repeated
	maxNames    = 12 // known names that are listed
)

// walk compares valid JSON with a Go type. It visits each byte once, and stops at maxProblems.
type walk struct {
	text     []byte
	at       int
	null     bool // null is accepted
	problems []sandbox.Field
}

func (w *walk) problem(path, format string, args ...any) {
	w.problems = append(w.problems, sandbox.Field{Name: cmp.Or(path, Body), Problem: fmt.Sprintf(format, args...)})
}

func (w *walk) full() bool { return len(w.problems) >= maxProblems }

// value compares the next value with a type, and moves past it.
func (w *walk) value(t reflect.Type, path string) {
	w.space()
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if w.text[w.at] == 'n' {
		if !w.null {
			w.problem(path, "must not be null")
		}
		w.skip()
		return
	}
	first := w.text[w.at]
	switch is := formOf(t); {
	case is == ownForm:
		w.own(t, path)
	case is == object && first == '{':
		w.object(t, path)
	case is == list && first == '[':
		w.list(t, path)
	case is == text && first == '"':
		w.skip()
	case is == anything:
		w.skip()
	default:
		if value := w.skip(); is != scalar || json.Unmarshal(value, reflect.New(t).Interface()) != nil {
			w.problem(path, "must be %s", nameOf(t))
		}
	}
}

// form is the JSON form of a type.
type form int

const (
	anything form = iota
	ownForm       // the type decodes itself
	object
	list
	text
	scalar // a number, a boolean, or bytes in base64
)

var (
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func formOf(t reflect.Type) form {
	if t.Kind() == reflect.Interface {
		return anything
	}
	if p := reflect.PointerTo(t); p.Implements(textUnmarshaler) || p.Implements(unmarshaler) {
		return ownForm
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return object
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return scalar
		}
		return list
	case reflect.String:
		return text
	default:
		return scalar
	}
}

// own makes a type decode its value, and reports the type's error.
func (w *walk) own(t reflect.Type, path string) {
	value, target := w.skip(), reflect.New(t).Interface()
	err := json.Unmarshal(value, target)
	if err == nil {
		return
	}
	of, isText := target.(encoding.TextUnmarshaler)
	switch {
	case t == reflect.TypeFor[time.Time]():
		w.problem(path, "must be a time in RFC 3339, such as \"2026-08-01T12:00:00Z\"")
	case isText && value[0] != '"' && len(value) <= maxName:
		if err = of.UnmarshalText(value); err == nil {
			w.problem(path, "must be a string: %q", value) // an amount as a number
			return
		}
		w.problem(path, "must be a string: %v", err) // the error has an example
	case isText && value[0] != '"':
		w.problem(path, "must be a string")
	default:
		w.problem(path, "%v", err)
	}
}

// object compares an object with a struct or a map.
func (w *walk) object(t reflect.Type, path string) {
	if path != "" {
		path += "."
	}
	var (
		fields *fields
		seen   []bool          // by index of the field
		keys   map[string]bool // of a map
	)
	if t.Kind() == reflect.Struct {
		fields = fieldsOf(t)
		seen = make([]bool, len(fields.types))
	} else {
		keys = map[string]bool{}
	}
	for w.at++; w.next('}') && !w.full(); {
		name := w.name()
		w.space()
		w.at++ // the colon
		if fields == nil {
			if keys[string(name)] {
				w.problem(path+short(name), "is a duplicate")
			}
			keys[string(name)] = true
			w.value(t.Elem(), path+string(name))
			continue
		}
		i, known := fields.index[string(name)]
		switch {
		case !known:
			w.skipNext()
			w.problem(path+short(name), "is an unknown field%s", fields.meant(short(name)))
		case seen[i]:
			w.skipNext()
			w.problem(path+string(name), "is a duplicate")
		default:
			seen[i] = true
			w.value(fields.types[i], path+string(name))
		}
	}
}

func (w *walk) list(t reflect.Type, path string) {
	w.at++
	for i := 0; w.next(']') && !w.full(); i++ {
		if is := formOf(t.Elem()); is == text && w.text[w.at] == '"' {
			w.skip() // the common case, without its path
			continue
		}
		w.value(t.Elem(), path+"["+strconv.Itoa(i)+"]")
	}
}

// next moves to the next entry of an object or a list, and reports whether there is one. Otherwise it moves past the
// end.
func (w *walk) next(end byte) bool {
	w.space()
	if w.text[w.at] == ',' {
		w.at++
		w.space()
	}
	if w.text[w.at] == end {
		w.at++
		return false
	}
	return true
}

// name returns the next name of an object.
func (w *walk) name() []byte {
	quoted := w.skip()
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var name string
	_ = json.Unmarshal(quoted, &name) // a name is a valid string
	return []byte(name)
}

func (w *walk) space() {
	for w.at < len(w.text) {
		switch w.text[w.at] {
		case ' ', '\t', '\r', '\n':
			w.at++
		default:
			return
		}
	}
}

func (w *walk) skipNext() {
	w.space()
	w.skip()
}

// skip moves past the value that begins here, and returns it.
func (w *walk) skip() []byte {
	start, depth := w.at, 0
	for {
		switch w.text[w.at] {
		case '"':
			w.string()
		case '{', '[':
			depth++
			w.at++
		case '}', ']':
			depth--
			w.at++
		case ' ', '\t', '\r', '\n', ',', ':':
			w.at++
		default: // a number or a word
			for w.at++; w.at < len(w.text) && bytes.IndexByte([]byte(" \t\r\n,:}]"), w.text[w.at]) < 0; {
				w.at++
			}
		}
		if depth == 0 {
			return w.text[start:w.at]
		}
	}
}

// string moves past the string that begins here.
func (w *walk) string() {
	for w.at++; ; {
		w.at += bytes.IndexByte(w.text[w.at:], '"')
		backslashes := 0
		for w.text[w.at-1-backslashes] == '\\' {
			backslashes++
		}
		w.at++
		if backslashes%2 == 0 {
			return
		}
	}
}

// nameOf names the JSON form of a type for an error.
func nameOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		switch e := t.Elem(); {
		case e.Kind() == reflect.Uint8:
			return "a string in base64"
		case formOf(e) == text:
			return "a list of strings"
		case formOf(e) == object:
			return "a list of objects"
		}
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", ^uint64(0)>>(64-t.Bits()))
	default:
		return "a whole number"
	}
}

// short returns a name as an error may repeat it.
func short(name []byte) string {
	if len(name) <= maxName {
		return string(name)
	}
	return strings.ToValidUTF8(string(name[:maxName]), "") + "…"
}

// meant returns the field that an unknown name probably meant, or lists the fields.
func (f *fields) meant(name string) string {
	for _, known := range f.names {
		if strings.EqualFold(known, name) || strings.HasPrefix(known, name+"_") {
			return "; did you mean " + known + "?"
		}
	}
	if known := nearest.To(name, f.names); known != "" {
		return "; did you mean " + known + "?"
	}
	if len(f.names) <= maxNames {
		return "; the fields are " + strings.Join(f.names, ", ")
	}
	return ""
}
