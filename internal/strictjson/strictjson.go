// Package strictjson decodes JSON strictly. encoding/json accepts names in another case, and uses the last of several
// equal names. This package rejects both, and names each wrong field by its path.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Decode decodes one JSON value into v, a pointer. It returns the problems of the fields, at most maxProblems. It
// rejects unknown names, also names in another case, duplicates, wrong types, invalid UTF-8 and data after the value. A
// null leaves the field as it is.
func Decode(text []byte, v any) []sandbox.Field { return decode(text, v, true) }

// DecodeNonNull is Decode, but rejects null.
func DecodeNonNull(text []byte, v any) []sandbox.Field { return decode(text, v, false) }

// Body is the name of the whole value in a problem.
const Body = "body"

func decode(text []byte, v any, null bool) []sandbox.Field {
	if !utf8.Valid(text) {
		return body("is not valid UTF-8")
	}
	err := json.Unmarshal(text, v)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		line, column := position(text, syntax.Offset)
		return body(fmt.Sprintf("is not JSON: line %d, column %d: %v", line, column, syntax))
	}
	w := walk{text: text, null: null} // it relies on valid JSON
	w.value(reflect.TypeOf(v).Elem(), "")
	if err != nil && len(w.problems) == 0 {
		return body(err.Error())
	}
	return w.problems
}

// position returns the line and column of a syntax error. offset includes the wrong byte.
func position(text []byte, offset int64) (line, column int) {
	before := text[:max(offset-1, 0)]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

// Err returns problems as one error, nil if there are none.
func Err(problems []sandbox.Field) error {
	if len(problems) == 0 {
		return nil
	}
	texts := make([]string, len(problems))
	for i, p := range problems {
		if texts[i] = p.Problem; p.Name != Body {
			texts[i] = p.Name + ": " + p.Problem
		}
	}
	return errors.New(strings.Join(texts, "; "))
}

func body(problem string) []sandbox.Field { return []sandbox.Field{{Name: Body, Problem: problem}} }
