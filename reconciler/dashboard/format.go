package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// functions are the functions of templates.
func (d *Dashboard) functions() template.FuncMap {
	return template.FuncMap{
		"asset":          d.assetURL,
		"leasePath":      leasePath,
		"environmentURL": func(id string) string { return Root + "environments/" + url.PathEscape(id) },
		"in":             func(path string, parameters ...string) string { return address(path, parameters...) },
		"pieces":         pieces,
		"usd":            usd,
		"bytes":          size,
		"span":           func(d sandbox.Duration) string { return span(d.D()) },
		"words":          func(v any) string { return words(fmt.Sprint(v)) },
		"command":        commandLine,
		"data":           flat,
		"tone":           func(v any) string { return tones[v] },
		"sleeps":         sleeps,
		"cores":          cores,
		"asleep":         func(c sandbox.LeaseCounts) int64 { return c.Asleep + c.Stopped },
		"count":          func(n any) string { return count(reflect.ValueOf(n).Int()) },
		"outcome":        outcomeOf,
		"eventTone":      eventTone,
		"add":            func(a, b int64) int64 { return a + b },
		"ports":          ports,
		"join":           strings.Join,
		"mib":            func(n int64) string { return size(n << 20) },
		"seconds":        seconds,
	}
}

// leasePath returns the path of the page of a lease.
func leasePath(id string, more ...string) string {
	p := Root + "leases/" + url.PathEscape(id)
	for _, m := range more {
		p += "/" + url.PathEscape(m)
	}
	return p
}

// tones maps states of all types to colours. Pages always show the word too.
var tones = map[any]string{
	sandbox.SandboxPending: "busy", sandbox.SandboxReady: "good", sandbox.SandboxAsleep: "calm",
	sandbox.SandboxStopped: "calm", sandbox.SandboxFailed: "bad", sandbox.SandboxDeleting: "busy",
	sandbox.SandboxDeleted: "none",
	sandbox.LeaseActive:    "good", sandbox.LeaseExpired: "busy", sandbox.LeaseDestroyed: "none",
	sandbox.EnvironmentOpen: "good", sandbox.EnvironmentClosed: "none",
	sandbox.ProcessPending: "busy", sandbox.ProcessRunning: "good", sandbox.ProcessFailed: "bad",
	sandbox.ProcessExited: "none", sandbox.ProcessKilled: "none", sandbox.ProcessStopped: "none",
	sandbox.CompanionStarting: "busy", sandbox.CompanionReady: "good", sandbox.CompanionFailed: "bad",
	sandbox.CompanionUnhealthy: "bad",
	sandbox.SessionOpen:        "good", sandbox.SessionClosed: "none",
	sandbox.VerdictPass: "good", sandbox.VerdictFinding: "bad", sandbox.VerdictInapplicable: "none",
	sandbox.DriftOpen: "bad", sandbox.DriftResolved: "none",
	sandbox.DeliveryApplied: "good", sandbox.DeliveryStale: "none", sandbox.DeliveryUnmatched: "warn",
	sandbox.LLMRunning: "busy", sandbox.LLMCompleted: "good", sandbox.LLMRejected: "bad", sandbox.LLMUnsent: "warn",
	sandbox.LLMInterrupted: "warn",
	sandbox.AgentStarting:  "busy", sandbox.AgentRunning: "good", sandbox.AgentAsleep: "calm", sandbox.AgentEnded: "none",
	sandbox.EventEgressAllowed: "good", sandbox.EventEgressDenied: "bad", sandbox.EventEgressFailed: "warn",
}

// badge is a word with a colour.
type badge struct{ Tone, Text string }

// outcomeOf returns the state of a command. A command that failed is red and shows its exit code.
func outcomeOf(e sandbox.Exec) badge {
	switch {
	case e.State == sandbox.ExecRunning:
		return badge{"busy", "running"}
	case e.State == sandbox.ExecCancelled:
		return badge{"none", "cancelled"}
	case e.State == sandbox.ExecFailed:
		return badge{"bad", "failed"}
	case e.TimedOut:
		return badge{"bad", "timed out, exit " + itoa(int64(e.ExitCode))}
	case e.OOMKilled:
		return badge{"bad", "out of memory, exit " + itoa(int64(e.ExitCode))}
	case e.ExitCode != 0:
		return badge{"bad", "failed, exit " + itoa(int64(e.ExitCode))}
	default:
		return badge{"good", "finished"}
	}
}

// eventTone is "bad" for an event of a failure, and otherwise "".
func eventTone(e sandbox.Event) string {
	var data struct {
		ExitCode int `json:"exit_code"`
	}
	switch e.Type {
	case sandbox.EventExecFailed, sandbox.EventFailed, sandbox.EventDrift, sandbox.EventDeleteFailed,
		sandbox.EventSnapshotSaveFailed, sandbox.EventSnapshotLost, sandbox.EventDiskLost,
		sandbox.EventCompanionFailed, sandbox.EventCompanionUnhealthy:
		return "bad"
	case sandbox.EventExecFinished, sandbox.EventProcessExited:
		if json.Unmarshal(e.Data, &data) == nil && data.ExitCode != 0 {
			return "bad"
		}
	}
	return ""
}

// seconds formats a number of seconds.
func seconds(n float64) string {
	if n < 1 {
		return "0 s"
	}
	return span(time.Duration(n) * time.Second)
}

// ports formats the ports of an egress rule.
func ports(list []int) string {
	if len(list) == 0 {
		list = sandbox.DefaultEgressPorts
	}
	texts := make([]string, len(list))
	for i, port := range list {
		texts[i] = strconv.Itoa(port)
	}
	return strings.Join(texts, ", ")
}

// count formats a whole number with commas between thousands.
func count(n int64) string {
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

// sleeps describes when a sandbox falls asleep.
func sleeps(after sandbox.Duration) string {
	if after == 0 {
		return "never"
	}
	return "after " + span(after.D()) + " unused"
}

// cores formats thousandths of a core.
func cores(millis int64) string { return strconv.FormatFloat(float64(millis)/1000, 'f', -1, 64) }

// words formats a domain name as words. Pages call an exec a command.
func words(name string) string { return domainWords.Replace(name) }

var domainWords = strings.NewReplacer("exec.", "command ", "exec_id", "command id", "_", " ", ".", " ")

// usd formats an amount in dollars to the cent, or a smaller amount to its first significant digit.
func usd(n sandbox.NanoUSD) string {
	if exact := n.String(); n != 0 && n.Cents() == "0.00" || n.Cents() == "-0.00" {
		return "$" + exact[:min(len(exact), strings.IndexFunc(exact, func(r rune) bool { return r >= '1' && r <= '9' })+2)]
	}
	return "$" + n.Cents()
}

// size formats a number of bytes.
func size(n int64) string {
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

// span formats a duration in its two largest units.
func span(d time.Duration) string {
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

// precise formats a duration below a minute to hundredths of a second, and a longer one as span does.
func precise(d time.Duration) string {
	if d < time.Second || d >= time.Minute {
		return span(d)
	}
	return strconv.FormatFloat(d.Round(10*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
}

// moment is a time on a page: relative to now, with the exact time as a tooltip.
type moment struct {
	At  time.Time
	Now time.Time
}

// At returns a moment, for templates.
func (f *frame) At(t time.Time) moment { return moment{t.UTC(), f.now} }

// Now is the server's time in milliseconds. Browsers use it instead of their own clock.
func (f *frame) Now() int64 { return f.now.UnixMilli() }

// NavIs reports whether the page belongs to a section of the navigation.
func (f *frame) NavIs(section string) bool { return f.Section == section }

// Known reports whether the time is set.
func (m moment) Known() bool { return !m.At.IsZero() }

// ISO formats the time for programs.
func (m moment) ISO() string { return m.At.Format(time.RFC3339) }

// Exact formats the exact time for people.
func (m moment) Exact() string { return m.At.Format("2 January 2006, 15:04:05 MST") }

// Relative formats the time relative to now.
func (m moment) Relative() string {
	d := m.At.Sub(m.Now)
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return span(d) + " ago"
	default:
		return "in " + span(d)
	}
}

// commandLine formats a command, with quotes where a shell needs them.
func commandLine(args []string) string {
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

// printable replaces characters that hide or reverse text or control a terminal by a visible character. It filters
// whole pages, because names, outputs and payloads are untrusted.
func printable(text string) string {
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

// pair is a name and a value.
type pair struct{ Name, Value string }

// maxPairs limits the values of an event on a page.
const maxPairs = 12

// flat returns the data of an event as names and values, with nested names such as a.b.
func flat(data json.RawMessage) []pair {
	if len(data) == 0 {
		return nil
	}
	var v any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if dec.Decode(&v) != nil {
		return []pair{{"data", string(data)}}
	}
	pairs := flatten(nil, "", v)
	if len(pairs) > maxPairs {
		pairs = append(pairs[:maxPairs], pair{"…", fmt.Sprintf("and %d more", len(pairs)-maxPairs)})
	}
	return pairs
}

// unshown are values of events that pages show elsewhere or that help nobody.
var unshown = map[string]bool{"agent_did": true, "at": true, "attempt": true, "ended": true, "of": true}

func flatten(pairs []pair, name string, v any) []pair {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			if unshown[key] {
				continue
			}
			inner := key
			if name != "" {
				inner = name + "." + key
			}
			pairs = flatten(pairs, inner, v[key])
		}
		return pairs
	case []any:
		texts := make([]string, len(v))
		for i, one := range v {
			texts[i] = fmt.Sprint(one)
		}
		return append(pairs, pair{words(name), strings.Join(texts, ", ")})
	case nil:
		return pairs
	case json.Number:
		return append(pairs, figure(name, v))
	case string:
		return append(pairs, pair{words(name), text(v)})
	default:
		return append(pairs, pair{words(name), fmt.Sprint(v)})
	}
}

// text formats a time, a duration or a cancellation of an event for people, and leaves other texts as they are.
func text(v string) string {
	if v == context.Canceled.Error() { // by the sandbox: the gateway waits for nothing else
		return "the sandbox closed the connection first"
	}
	if at, err := time.Parse(time.RFC3339Nano, v); err == nil {
		return moment{At: at.UTC()}.Exact()
	}
	if d, err := time.ParseDuration(v); err == nil {
		return span(d)
	}
	return v
}

// figure formats a number of an event by the unit at the end of its name.
func figure(name string, n json.Number) pair {
	f, err := n.Float64()
	if err != nil {
		return pair{words(name), n.String()}
	}
	if plain, isBytes := strings.CutSuffix(name, "_bytes"); isBytes {
		return pair{words(plain), size(int64(f))}
	}
	if plain, isMillis := strings.CutSuffix(name, "_ms"); isMillis {
		return pair{words(plain), span(time.Duration(f) * time.Millisecond)}
	}
	if strings.ContainsAny(n.String(), ".eE") {
		return pair{words(name), strconv.FormatFloat(math.Round(f*1000)/1000, 'f', -1, 64)}
	}
	return pair{words(name), n.String()}
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
