// Package printable makes untrusted text safe for a terminal: the text can neither move the cursor nor change the
// reading order. It also formats counts, and wraps text.
package printable

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns a text as one line. It replaces C0 control characters by spaces, and escapes C1 control characters and
// bidirectional formatting characters as \u.
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

// isUnsafe reports whether a terminal may interpret a character. All such characters have at most 16 bits.
func isUnsafe(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// NewEncoder returns a JSON encoder that escapes the same characters. The values do not change.
func NewEncoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(NewWriter(w))
	enc.SetEscapeHTML(false)
	return enc
}

// NewWriter returns a writer that escapes the same characters, except newlines, as \u. Each Write must hold whole
// characters. In JSON and in double-quoted YAML the values do not change.
func NewWriter(w io.Writer) io.Writer { return escaping{w} }

// escaping escapes unsafe characters in JSON strings. Each Write must hold whole characters, as those of an encoder do.
type escaping struct{ to io.Writer }

// Write implements io.Writer.
func (e escaping) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p))
	for rest := p; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r != '\n' && isUnsafe(r) { // newlines occur only between values
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

// Count returns a number with its noun, such as "1 lease" or "2 leases".
func Count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Wrap breaks a text between words into lines of at most limit columns. 0 means no limit.
func Wrap(text string, limit int) string {
	if limit == 0 {
		return text
	}
	lines, line := "", ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > limit:
			lines, line = lines+line+"\n", word
		default:
			line += " " + word
		}
	}
	return lines + line
}
