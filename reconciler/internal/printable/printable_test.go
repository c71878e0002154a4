package printable_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
)

// unsafe returns the characters that no output may have: controls, and those that change the direction of text.
func unsafe() (all []rune) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			all = append(all, r)
		}
	}
	return all
}

func TestTextHasNothingThatATerminalActsOn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain, größer, 日本語, 🎲":   "plain, größer, 日本語, 🎲",
		"two\nlines\tand\x1b[31m": "two lines and [31m",
		"\u009b31mred":            `\u009b31mred`,
		"a\u202egnp.exe":          `a\u202egnp.exe`,
		"\u2066x\u2069\u200f":     `\u2066x\u2069\u200f`,
	} {
		if got := printable.Text(text); got != want {
			t.Errorf("%q is printed as %q, want %q", text, got, want)
		}
	}
	for _, r := range unsafe() {
		if got := printable.Text("a" + string(r) + "b"); strings.ContainsRune(got, r) {
			t.Errorf("%U is printed", r)
		}
	}
}

func TestJSONHasNothingThatATerminalActsOnAndTheSameValue(t *testing.T) {
	t.Parallel()
	value := map[string]any{"plain": "größer <&> 日本語 🎲 \\u202e \"", "list": []any{"x", 1.5, nil, true}}
	for _, r := range unsafe() {
		value[fmt.Sprintf("key %c %U", r, r)] = "a" + string(r) + "b"
	}
	for _, indent := range []string{"", "  "} {
		var b bytes.Buffer
		enc := printable.NewEncoder(&b)
		enc.SetIndent("", indent)
		if err := enc.Encode(value); err != nil {
			t.Fatal(err)
		}
		for _, r := range unsafe() {
			if r != '\n' && strings.ContainsRune(b.String(), r) {
				t.Errorf("%U is printed", r)
			}
		}
		var back map[string]any
		if err := json.Unmarshal(b.Bytes(), &back); err != nil || !reflect.DeepEqual(back, value) {
			t.Errorf("it is read back as %v, %v", back, err)
		}
		if !strings.Contains(b.String(), `größer <&> 日本語 🎲`) {
			t.Errorf("safe text is escaped: %s", b.String())
		}
	}
}
