// Package wire is the protocol from the guest's helper commands to the executor: the streams of a command
// and, as the last frame, its result. The engine's exit code does not show whether a command timed out or ran
// out of memory, and the engine's streams do not show whether they are complete.
//
// A frame is one byte of kind, four bytes of length (big endian) and the payload. Sandboxes outlive
// releases of this program: kinds and fields are added, never changed.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

type kind byte

const (
	stdout kind = 1
	stderr kind = 2
	result kind = 3
	// begins is the offset in a log of the first byte of the next stdout frame: eight bytes, big endian.
	begins kind = 4
)

const beginsSize = 8

const headerSize = 5

// maxResult limits the result frame, in bytes. Our guest never sends a longer one.
const maxResult = 64 << 10

// Problem classes of a helper that failed.
const (
	ProblemInvalid  = "invalid"
	ProblemNotFound = "not_found"
	ProblemFailed   = "failed"
	ProblemConflict = "conflict"
	// ProblemBusy means that the sandbox was frozen for the command's whole timeout, so the command was not started.
	ProblemBusy = "busy"
	// ProblemUnknown means that the guest restarted during the operation, which may have been carried out.
	ProblemUnknown = "unknown"
	// ProblemInputCut means that the command's input broke off before its end, so process 1 killed the command.
	ProblemInputCut = "input_cut"
)

// DataEmpty is the fingerprint of an empty directory.
const DataEmpty = "empty"

// Result is the result of a helper.
type Result struct {
	ExitCode  int           `json:"exit_code"`
	Duration  time.Duration `json:"duration"`
	TimedOut  bool          `json:"timed_out,omitempty"`
	OOMKilled bool          `json:"oom_killed,omitempty"`
	// StdoutBytes and StderrBytes are the sizes of the command's output. Dropped: not all of it is kept.
	StdoutBytes int64 `json:"stdout_bytes,omitempty"`
	StderrBytes int64 `json:"stderr_bytes,omitempty"`
	Dropped     bool  `json:"dropped,omitempty"`
	// Shell is the state that a shell line left behind, nil if its shell did not report it.
	Shell *ShellState `json:"shell,omitempty"`
	// Data is a fingerprint of /data after the work; it changes with the content. It is "" if it was not
	// requested or is unknown.
	Data string `json:"data,omitempty"`
	// CPUTime is the sandbox's CPU time since its start, after a command and on request; 0 if unknown.
	CPUTime time.Duration `json:"cpu_time,omitempty"`
	// Problem is set if the helper itself failed, not its command.
	Problem string `json:"problem,omitempty"`
	Message string `json:"message,omitempty"`
}

// Writer writes frames. It is safe for concurrent use.
type Writer struct {
	mu      sync.Mutex
	w       io.Writer
	buffer  []byte // the last frame, or frames that wait
	gathers bool
}

// NewWriter returns a Writer onto w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Stdout and Stderr return writers for the streams of the command.
func (w *Writer) Stdout() io.Writer { return stream{w, stdout} }

// Stderr is documented with Stdout.
func (w *Writer) Stderr() io.Writer { return stream{w, stderr} }

// Gather makes small frames wait for each other, and for the result.
func (w *Writer) Gather() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gathers = true
}

// Result writes the last frame.
func (w *Writer) Result(r Result) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return w.frame(result, b)
}

// Begins writes the log's offset of the next byte of Stdout.
func (w *Writer) Begins(offset int64) error {
	return w.frame(begins, binary.BigEndian.AppendUint64(nil, uint64(offset)))
}

func (w *Writer) frame(k kind, p []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := append(w.buffer, byte(k))
	b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
	b = append(b, p...)
	if w.gathers && k != result && len(b) < maxGathered {
		w.buffer = b
		return nil
	}
	if w.buffer = nil; len(b) <= maxBuffer {
		w.buffer = b[:0]
	}
	_, err := w.w.Write(b)
	return err
}

// maxGathered limits the frames that wait, in bytes.
const maxGathered = 32 << 10

// maxBuffer limits the memory that a Writer keeps, in bytes.
const maxBuffer = 128 << 10

type stream struct {
	w *Writer
	k kind
}

func (s stream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.w.frame(s.k, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Demux parses the output of a Writer, in pieces of any size.
type Demux struct {
	Stdout, Stderr io.Writer
	// Begins receives the offsets of Writer.Begins; nil ignores them.
	Begins func(offset int64) error

	header  []byte
	kind    kind
	left    uint32
	partial []byte
	result  *Result
}

// Write implements io.Writer. It fails if a stream's writer fails or the input violates the protocol.
func (d *Demux) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		if d.left == 0 {
			n := min(headerSize-len(d.header), len(p))
			d.header, p = append(d.header, p[:n]...), p[n:]
			if len(d.header) < headerSize {
				break
			}
			if err := d.begin(); err != nil {
				return 0, err
			}
			continue
		}
		n := min(int(d.left), len(p))
		if err := d.payload(p[:n]); err != nil {
			return 0, err
		}
		p = p[n:]
	}
	return total, nil
}

func (d *Demux) begin() error {
	d.kind, d.left = kind(d.header[0]), binary.BigEndian.Uint32(d.header[1:])
	d.header = d.header[:0]
	if d.result != nil || d.kind == result && (d.left == 0 || d.left > maxResult) ||
		d.kind == begins && d.left != beginsSize {
		return fmt.Errorf("the guest sent an unexpected frame of kind %d with %d bytes", d.kind, d.left)
	}
	return nil
}

func (d *Demux) payload(p []byte) error {
	d.left -= uint32(len(p))
	switch d.kind {
	case stdout:
		return writeAll(d.Stdout, p)
	case stderr:
		return writeAll(d.Stderr, p)
	case result:
		d.partial = append(d.partial, p...)
		if d.left > 0 {
			return nil
		}
		d.result = new(Result)
		return json.Unmarshal(d.partial, d.result)
	case begins:
		d.partial = append(d.partial, p...)
		if d.left > 0 {
			return nil
		}
		offset := int64(binary.BigEndian.Uint64(d.partial))
		d.partial = nil
		if d.Begins == nil {
			return nil
		}
		return d.Begins(offset)
	default:
		return nil // ignore kinds of later releases
	}
}

func writeAll(w io.Writer, p []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(p)
	return err
}

// Result returns the last frame, or false if the stream ended without one.
func (d *Demux) Result() (Result, bool) {
	if d.result == nil {
		return Result{}, false
	}
	return *d.result, true
}
