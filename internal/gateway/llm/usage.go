package llm

import (
	"encoding/json"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// dialect is the format of an endpoint's requests and answers.
type dialect int

const (
	chat dialect = iota
	responses
	embeddings
	messages
	counting // counts the tokens of messages, at no cost
)

// anthropic reports whether requests have the format of Anthropic's messages.
func (d dialect) anthropic() bool { return d == messages || d == counting }

// maxCount is the largest plausible token count.
const maxCount = 1_000_000_000

// maxUsage limits a usage object in bytes.
const maxUsage = 64 << 10

// Indexes of newMeter's picker.
const (
	atUsage = iota
	atType
	atChoices
	atResponseUsage
	atMessageUsage
	atStopReason
)

// meter reads the use of a call from its answer.
type meter struct {
	dialect dialect
	picker  *picker
	events  *events // nil if the answer is not a stream

	tokens sandbox.LLMTokens
	seen   bool // tokens has at least the input
	final  bool // tokens is complete
	bad    bool // the upstream sent impossible counts
	done   bool // the answer's own end was read
}

// newMeter returns the meter of an answer. With hide, the client does not get the chunk that has only the usage.
func newMeter(d dialect, stream, hide bool) *meter {
	m := &meter{dialect: d, picker: newPicker(
		wanted{"usage", "", maxUsage}, wanted{"type", "", 64}, wanted{"choices", "", 16},
		wanted{"response", "usage", maxUsage}, wanted{"message", "usage", maxUsage}, wanted{"delta", "stop_reason", 64})}
	if stream {
		m.events = newEvents(m.picker, hide && d == chat, m.event)
	}
	return m
}

// write reads a piece of the answer and returns the bytes for the client.
func (m *meter) write(b []byte) []byte {
	if m.events != nil {
		return m.events.write(b)
	}
	m.picker.write(b)
	if !m.done && m.picker.whole() {
		m.read(m.picker.value(atUsage))
		m.final, m.done = m.seen || m.dialect == counting, true
	}
	return b
}

// end handles the end of a completely received answer. It returns the last bytes for the client, and whether the answer
// is complete by its own format.
func (m *meter) end() (rest []byte, whole bool) {
	if m.events == nil {
		return nil, true
	}
	if m.events.hasData { // the last event lacks its blank line
		drop := m.event(string(m.events.head))
		if drop {
			m.events.held = nil
		}
	}
	if m.dialect == chat && m.seen { // without [DONE], which some upstreams omit
		m.final = true
	}
	return m.events.rest(), m.done || m.dialect == chat || m.dialect == embeddings
}

// event reads an event of a stream.
func (m *meter) event(head string) (drop bool) {
	p := m.picker
	switch m.dialect {
	case chat, embeddings:
		if head == "[DONE]" {
			m.done, m.final = true, m.seen
			return false
		}
		usage := p.value(atUsage)
		m.read(usage)
		if string(p.value(atChoices)) == "[]" && usage != nil {
			m.final = m.seen
			return true
		}
	case responses:
		switch p.string(atType) {
		case "response.completed", "response.incomplete", "response.failed":
			m.read(p.value(atResponseUsage))
			m.done, m.final = true, m.seen
		}
	case messages:
		switch p.string(atType) {
		case "message_start":
			m.read(p.value(atMessageUsage))
		case "message_delta":
			m.read(p.value(atUsage))
			m.final = m.seen && p.string(atStopReason) != ""
		case "message_stop":
			m.done = true
		}
	}
	return false
}

// known reports whether tokens is the actual use of the call.
func (m *meter) known() bool { return m.final && !m.bad }

// counts are the upstream's counts in all dialects. Absent ones are nil.
type counts struct {
	Prompt        *int64        `json:"prompt_tokens"`
	Completion    *int64        `json:"completion_tokens"`
	PromptDetails *countDetails `json:"prompt_tokens_details"`

	Input        *int64        `json:"input_tokens"`
	Output       *int64        `json:"output_tokens"`
	InputDetails *countDetails `json:"input_tokens_details"`

	Total *int64 `json:"total_tokens"`

	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
}

type countDetails struct {
	Cached *int64 `json:"cached_tokens"`
	// Written is OpenRouter's count, for upstreams that charge for cache writes.
	Written *int64 `json:"cache_write_tokens"`
}

// read reads a usage object. Later objects complete earlier ones.
func (m *meter) read(usage []byte) {
	if usage == nil {
		return
	}
	var c counts
	if json.Unmarshal(usage, &c) != nil {
		m.bad = true
		return
	}
	t := m.tokens
	if m.dialect == messages {
		// Counts are cumulative. Some upstreams repeat the input's counts as 0.
		for _, n := range []struct{ to, from *int64 }{
			{&t.Input, c.Input}, {&t.CachedInput, c.CacheRead}, {&t.CacheWrite, c.CacheWrite}, {&t.Output, c.Output},
		} {
			if n.from == nil {
				continue
			}
			m.bad = m.bad || *n.from < 0
			*n.to = max(*n.to, *n.from)
		}
		m.seen = m.seen || c.Input != nil
	} else {
		input, output, details := c.Prompt, c.Completion, c.PromptDetails
		if m.dialect == responses {
			input, output, details = c.Input, c.Output, c.InputDetails
		}
		if input == nil || output == nil && m.dialect != embeddings {
			return
		}
		t = sandbox.LLMTokens{}
		if details != nil {
			set(&t.CachedInput, details.Cached)
			set(&t.CacheWrite, details.Written)
		}
		set(&t.Output, output)
		if c.Total != nil && m.dialect != embeddings { // some upstreams count reasoning only in the total
			t.Output = max(t.Output, *c.Total-*input)
		}
		t.Input = *input - t.CachedInput - t.CacheWrite
		m.seen = true
	}
	for _, n := range []int64{t.Input, t.CachedInput, t.CacheWrite, t.Output} {
		if n < 0 || n > maxCount {
			m.bad = true
			return
		}
	}
	m.tokens = t
}

func set(to, from *int64) {
	if from != nil {
		*to = *from
	}
}
