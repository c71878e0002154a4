// Package printable makes what others have written safe to print on a terminal: it must neither move the cursor nor
// change the order in which text is read.
package printable

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns a text as one line without C0 control characters, and with C1 control characters and bidirectional
// formatting characters as \u escapes.
func Text(s string) string {
	if strings.IndexFunc(s, isUnsafe) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < ' ' || r == 0x7f:
			b.WriteByte(' ')
		case isUnsafe(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isUnsafe reports whether a terminal may act on a character. All of these have at most 16 bits.
func isUnsafe(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// NewEncoder returns an encoder of JSON that escapes the same characters. The values stay the same.
func NewEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(escaping{w})
	enc.SetEscapeHTML(false)
	return enc
}

// escaping escapes what stands in the strings of JSON. It must be given whole characters, as an encoder does.
type escaping struct{ to io.Writer }

// Write implements io.Writer.
func (e escaping) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p))
	for rest := p; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r != '\n' && isUnsafe(r) { // between values only: in strings encoding/json escapes it
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, rest[:size]...)
		}
		rest = rest[size:]
	}
	if _, err := e.to.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
