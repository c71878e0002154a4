package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// FuzzDemux compares Demux with a slow reader. A guest's stream comes from a sandbox: in any pieces, both must read the
// same or refuse it.
func FuzzDemux(f *testing.F) {
	var whole bytes.Buffer
	w := wire.NewWriter(&whole)
	for _, write := range []func() (int, error){
		func() (int, error) { return w.Stdout().Write([]byte("out")) },
		func() (int, error) { return w.Stderr().Write([]byte("err")) },
		func() (int, error) { return 0, w.Result(wire.Result{ExitCode: 3, TimedOut: true}) },
	} {
		if _, err := write(); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(whole.Bytes(), 1)
	f.Add(append(bytes.Clone(whole.Bytes()), 1, 0, 0, 0, 1, 'x'), 7)
	f.Add([]byte{3, 0, 0, 0, 2, '{', '}'}, 3)
	f.Add([]byte{3, 0, 0, 0, 0}, 5)
	f.Add(append([]byte{3, 0, 0, 0, 27}, `{"shell":{"set":{"A":"b"}}}`...), 6)
	f.Add([]byte{9, 0, 0, 0, 3, 'a', 'b', 'c', 3, 0xff, 0xff, 0xff, 0xff}, 2)
	f.Add([]byte{1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1}, 4)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		var stdout, stderr bytes.Buffer
		d := &wire.Demux{Stdout: &stdout, Stderr: &stderr}
		var refused error
		for rest := stream; len(rest) > 0 && refused == nil; {
			n := max(1, min(len(rest), cut))
			_, refused = d.Write(rest[:n])
			rest = rest[n:]
		}
		want := slowDemux(stream)
		result, ended := d.Result()
		if (refused != nil) != want.refused {
			t.Fatalf("refused: %v, want %t", refused, want.refused)
		}
		if refused != nil {
			return // without a result, the rest is useless
		}
		if stdout.String() != want.stdout || stderr.String() != want.stderr || ended != (want.result != nil) ||
			ended && !reflect.DeepEqual(result, *want.result) {
			t.Errorf("%q, %q, %+v (%t), want %+v", stdout.String(), stderr.String(), result, ended, want)
		}
	})
}

type demuxed struct {
	stdout, stderr string
	result         *wire.Result
	refused        bool
}

// slowDemux reads a stream in one piece, according to the package's comment.
func slowDemux(stream []byte) (d demuxed) {
	for len(stream) >= 5 {
		kind, size := stream[0], int(binary.BigEndian.Uint32(stream[1:]))
		stream = stream[5:]
		if d.result != nil || kind == 3 && (size == 0 || size > 64<<10) {
			d.refused = true
			return d
		}
		payload := stream[:min(size, len(stream))]
		stream = stream[len(payload):]
		switch kind {
		case 1:
			d.stdout += string(payload)
		case 2:
			d.stderr += string(payload)
		case 3:
			if len(payload) < size {
				return d
			}
			d.result = new(wire.Result)
			if json.Unmarshal(payload, d.result) != nil {
				d.refused = true
				return d
			}
		}
	}
	return d
}
