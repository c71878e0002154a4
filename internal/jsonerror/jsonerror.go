// Package jsonerror decodes JSON. Its errors name the wrong field as JSON spells it, and no types of Go.
package jsonerror

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Error is why a JSON text could not be decoded into a value.
type Error struct {
	// Field is the path of the wrong field, such as "mounts[1].source". It is "" if the text as a whole is wrong.
	Field string
	// Problem says what is wrong and what is valid. It follows the field's name.
	Problem string

	cause error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Field == "" {
		return e.Problem
	}
	return e.Field + ": " + e.Problem
}

// Unwrap returns the decoder's error.
func (e *Error) Unwrap() error { return e.cause }

// Strict decodes a text of one JSON value. It rejects unknown fields, so that a misspelled one does not silently leave
// its default. Errors: *Error.
func Strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return Explain(err, text, into)
	}
	if rest := bytes.TrimLeft(text[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		at := place(text, int64(len(text)-len(rest)))
		return &Error{Problem: "must be one JSON value, but more follows it in " + at}
	}
	return nil
}

// Explain returns why a decoder that rejects unknown fields could not decode a text into a value, which must be a
// pointer. Without the text, which a decoder of a stream does not keep, paths have no indexes, and an unknown field has
// its last name only. An error of reading the text is returned as it is.
func Explain(err error, text []byte, into any) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	target := reflect.TypeOf(into).Elem()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		return &Error{Problem: "must be JSON, but is empty", cause: err}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Problem: "must be JSON, but ends before its value does", cause: err}
	case errors.As(err, &syntax):
		problem := "must be JSON: " + syntax.Error()
		if text != nil {
			problem = "must be JSON: " + place(text, syntax.Offset-1) + ": " + syntax.Error()
		}
		return &Error{Problem: problem, cause: err}
	}
	if text != nil {
		if e := walk("", text, target); e != nil {
			e.cause = err
			return e
		}
	}
	if errors.As(err, &kind) {
		return &Error{Field: pathOf(kind.Field, target), Problem: mustBe(kind.Type, kind.Value), cause: err}
	}
	if quoted, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		if name, e := strconv.Unquote(quoted); e == nil {
			return &Error{Field: name, Problem: unlike(name, slices.Sorted(maps.Keys(fieldsOf(target)))), cause: err}
		}
	}
	if text == nil {
		return err
	}
	return &Error{Problem: strings.TrimPrefix(err.Error(), "json: "), cause: err}
}

// place describes an offset by line and column, which count characters from 1.
func place(text []byte, offset int64) string {
	before := string(text[:max(0, min(offset, int64(len(text))))])
	line := strings.Count(before, "\n")
	column := len([]rune(before[strings.LastIndexByte(before, '\n')+1:]))
	return fmt.Sprintf("line %d, column %d", line+1, column+1)
}
