package llm

import (
	"bytes"
	"encoding/json"
)

// wanted is a member of a JSON object that a picker keeps: outer, or inner of outer.
type wanted struct {
	outer, inner string
	most         int // size limit in bytes; a longer value counts as too long
}

// picker reads one JSON value piece by piece, and keeps only wanted members. Its memory is bounded for a value of any
// size. It does not check the syntax.
type picker struct {
	want []wanted
	got  [][]byte // by index of want; nil if absent
	long []bool

	depth    int
	kind     [3]byte // '{' or '[' at depths 1 and 2
	keys     [3][]byte
	inString bool
	escaped  bool
	inKey    bool
	needKey  bool
	catching int // index of want + 1
	at       int // depth of the kept value
	begun    bool
}

// maxKey limits a key in bytes. No longer key is wanted.
const maxKey = 64

func newPicker(want ...wanted) *picker {
	return &picker{want: want, got: make([][]byte, len(want)), long: make([]bool, len(want))}
}

// reset prepares for the next value.
func (p *picker) reset() {
	for i := range p.got {
		p.got[i], p.long[i] = nil, false
	}
	*p = picker{want: p.want, got: p.got, long: p.long, keys: p.keys}
}

// whole reports whether a complete object or array was read.
func (p *picker) whole() bool { return p.begun && p.depth == 0 }

func (p *picker) write(b []byte) {
	for _, c := range b {
		p.next(c)
	}
}

func (p *picker) next(c byte) {
	if p.inString {
		p.keep(c)
		p.text(c)
		return
	}
	if p.catching > 0 && p.depth == p.at && (c == ',' || c == '}') {
		p.catching = 0
	}
	p.keep(c)
	switch c {
	case '"':
		p.inString = true
		if p.inKey = p.needKey; p.inKey {
			p.keys[p.depth] = p.keys[p.depth][:0]
		}
	case '{', '[':
		p.begun = true
		p.depth++
		p.needKey = false
		if p.depth < len(p.kind) {
			p.kind[p.depth] = c
			p.needKey = c == '{'
		}
	case '}', ']':
		p.depth = max(p.depth-1, 0)
		p.needKey = false
	case ',':
		p.needKey = p.depth > 0 && p.depth < len(p.kind) && p.kind[p.depth] == '{'
	case ':':
		p.needKey = false
		p.catch()
	}
}

// text reads a byte of a string.
func (p *picker) text(c byte) {
	end := c == '"' && !p.escaped
	p.escaped = c == '\\' && !p.escaped
	if end {
		p.inString, p.inKey = false, false
		return
	}
	if p.inKey && len(p.keys[p.depth]) <= maxKey {
		p.keys[p.depth] = append(p.keys[p.depth], c)
	}
}

// catch begins to keep the next value if it is wanted.
func (p *picker) catch() {
	if p.catching > 0 || p.depth < 1 || p.depth >= len(p.kind) || p.kind[p.depth] != '{' || p.kind[1] != '{' {
		return
	}
	for i, w := range p.want {
		if (p.depth == 1) != (w.inner == "") || !is(p.keys[1], w.outer) || p.depth == 2 && !is(p.keys[2], w.inner) {
			continue
		}
		p.catching, p.at = i+1, p.depth
		p.got[i], p.long[i] = []byte{}, false
		return
	}
}

// is reports whether a raw JSON key equals a name.
func is(key []byte, name string) bool {
	if bytes.IndexByte(key, '\\') < 0 {
		return string(key) == name
	}
	return unescape(key) == name
}

// unescape returns the text of a JSON string without its quotes.
func unescape(b []byte) string {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b)
	}
	var s string
	if json.Unmarshal(append(append([]byte{'"'}, b...), '"'), &s) != nil {
		return string(b)
	}
	return s
}

func (p *picker) keep(c byte) {
	if p.catching == 0 {
		return
	}
	i := p.catching - 1
	if len(p.got[i]) >= p.want[i].most {
		p.long[i] = true
		return
	}
	p.got[i] = append(p.got[i], c)
}

// value returns a wanted member: nil if it is absent, null, or too long.
func (p *picker) value(i int) []byte {
	v := bytes.TrimSpace(p.got[i])
	if len(v) == 0 || p.long[i] || string(v) == "null" {
		return nil
	}
	return v
}

// string returns a wanted member that is a string.
func (p *picker) string(i int) string {
	var s string
	if v := p.value(i); v != nil && json.Unmarshal(v, &s) != nil {
		return ""
	}
	return s
}

// events reads a stream of server-sent events, and gives each event's data to a picker.
type events struct {
	picker *picker
	// ended is called at the end of each event that has data. It returns true if the client must not get the event.
	ended func(head string) (drop bool)
	// holding means that each event is held back until its end, so that it can be dropped.
	holding bool

	line    []byte // beginning of a line
	inData  bool
	blank   bool   // the line has no bytes yet
	head    []byte // beginning of the event's data
	hasData bool
	held    []byte
	passing bool // the event is too large to hold back
}

const (
	// maxHeld limits an event that is held back. Dropped events are far smaller.
	maxHeld = 64 << 10
	maxHead = 16
)

func newEvents(p *picker, holding bool, ended func(head string) bool) *events {
	return &events{picker: p, holding: holding, ended: ended, blank: true}
}

// write reads a piece and returns the bytes for the client.
func (e *events) write(b []byte) []byte {
	if !e.holding {
		for _, c := range b {
			e.next(c)
		}
		return b
	}
	var out []byte
	for _, c := range b {
		if !e.passing {
			e.held = append(e.held, c)
		} else {
			out = append(out, c)
		}
		end, drop := e.next(c)
		switch {
		case end:
			if !drop {
				out = append(out, e.held...)
			}
			e.held, e.passing = e.held[:0], false
		case len(e.held) > maxHeld:
			out = append(out, e.held...)
			e.held, e.passing = e.held[:0], true
		}
	}
	return out
}

// rest returns the held bytes at the end of the stream.
func (e *events) rest() []byte {
	b := e.held
	e.held = nil
	return b
}

// next reads a byte, and reports whether it ends an event.
func (e *events) next(c byte) (end, drop bool) {
	if c == '\n' {
		end = e.blank
		if e.inData {
			e.picker.next('\n')
		}
		e.line, e.inData, e.blank = e.line[:0], false, true
		if end && e.hasData {
			drop = e.ended(string(bytes.TrimSpace(e.head)))
			e.picker.reset()
			e.head, e.hasData = e.head[:0], false
		}
		return end, drop
	}
	if c != '\r' {
		e.blank = false
	}
	switch {
	case e.inData:
		if len(e.head) < maxHead {
			e.head = append(e.head, c)
		}
		e.picker.next(c)
	case len(e.line) < len("data:"):
		e.line = append(e.line, c)
		if string(e.line) == "data:" {
			e.inData, e.hasData = true, true
		}
	}
	return false, false
}
