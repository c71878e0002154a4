// Package format writes values of the domain as texts of a page: amounts, times, commands, states and data of events.
package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Seconds formats a number of seconds.
func Seconds(n float64) string {
	if n < 1 {
		return "0 s"
	}
	return Span(time.Duration(n) * time.Second)
}

// Ports formats the ports of an egress rule.
func Ports(list []int) string {
	if len(list) == 0 {
		list = sandbox.DefaultEgressPorts
	}
	texts := make([]string, len(list))
	for i, port := range list {
		texts[i] = strconv.Itoa(port)
	}
	return strings.Join(texts, ", ")
}

// Count formats a whole number with commas between thousands.
func Count(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// Counted formats a number of things. If n is most, it says that only the latest are shown.
func Counted(n int, what string, most int) string {
	switch n {
	case 0:
		return "no " + what + "s"
	case 1:
		return "1 " + what
	case most:
		return "the latest " + Count(int64(n)) + " " + what + "s"
	default:
		return Count(int64(n)) + " " + what + "s"
	}
}

// Sleeps formats when a sandbox falls asleep.
func Sleeps(after sandbox.Duration) string {
	if after == 0 {
		return "never"
	}
	return "after " + Span(after.D()) + " unused"
}

// Cores formats thousandths of a core.
func Cores(millis int64) string { return strconv.FormatFloat(float64(millis)/1000, 'f', -1, 64) }

// Words formats a domain name as words. Pages call an exec a command.
func Words(name string) string { return domainWords.Replace(name) }

var domainWords = strings.NewReplacer("exec.", "command ", "exec_id", "command id", "_", " ", ".", " ")

// USD formats an amount in dollars to the cent, or a smaller amount to its first significant digit.
func USD(n sandbox.NanoUSD) string {
	if exact := n.String(); n != 0 && n.Cents() == "0.00" || n.Cents() == "-0.00" {
		return "$" + exact[:min(len(exact), strings.IndexFunc(exact, func(r rune) bool { return r >= '1' && r <= '9' })+2)]
	}
	return "$" + n.Cents()
}

// Bytes formats a number of bytes.
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n)/unit, 0
	for f >= unit && i < 3 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.3g %ciB", f, "KMGT"[i])
}

// Span formats a duration in its two largest units.
func Span(d time.Duration) string {
	if d < 0 {
		d = -d
	}
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	var parts []string
	for _, u := range []struct {
		d    time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if n := d / u.d; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, u.name))
			d %= u.d
		} else if len(parts) > 0 {
			break
		}
		if len(parts) == 2 {
			break
		}
	}
	return strings.Join(parts, " ")
}

// Precise formats a duration below a minute to hundredths of a second, and a longer one as Span does.
func Precise(d time.Duration) string {
	if d < time.Second || d >= time.Minute {
		return Span(d)
	}
	return strconv.FormatFloat(d.Round(10*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
}

// CommandLine formats a command, with quotes where a shell needs them.
func CommandLine(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = a
		if a == "" || strings.ContainsFunc(a, func(r rune) bool {
			return !strings.ContainsRune("-_./:=@%+,", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
		}) {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// Printable replaces characters that hide or reverse text or control a terminal by a visible character. It filters
// whole pages, because names, outputs and payloads are untrusted.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\x1b':
			return '␛'
		case r == '\r':
			return -1
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return '\uFFFD'
		default:
			return r
		}
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// Piece is a part of a text.
type Piece struct {
	Text string
	Code bool
}

// Pieces splits a text at backquotes, which enclose code.
func Pieces(text string) (all []Piece) {
	for i, part := range strings.Split(text, "`") {
		if part != "" {
			all = append(all, Piece{part, i%2 == 1})
		}
	}
	return all
}
