package wire_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

func conversation(t *testing.T) (stream []byte, want wire.Result) {
	t.Helper()
	var b bytes.Buffer
	w := wire.NewWriter(&b)
	for _, s := range []string{"one ", "", strings.Repeat("x", 70_000), " two"} {
		if _, err := io.WriteString(w.Stdout(), s); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w.Stderr(), strings.ToUpper(s)); err != nil {
			t.Fatal(err)
		}
	}
	want = wire.Result{ExitCode: 124, Duration: 7, TimedOut: true, OOMKilled: true}
	if err := w.Result(want); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), want
}

func TestStreamsAndResultArriveHoweverTheyAreCut(t *testing.T) {
	t.Parallel()
	stream, want := conversation(t)
	readers := map[string]io.Reader{
		"whole":        bytes.NewReader(stream),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
		"in halves":    iotest.HalfReader(bytes.NewReader(stream)),
	}
	for name, r := range readers {
		var out, errOut bytes.Buffer
		d := &wire.Demux{Stdout: &out, Stderr: &errOut}
		if _, err := io.Copy(struct{ io.Writer }{d}, r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, ok := d.Result()
		text := "one " + strings.Repeat("x", 70_000) + " two"
		if !ok || got != want || out.String() != text || errOut.String() != strings.ToUpper(text) {
			t.Errorf("%s: result %+v (%t), %d and %d bytes", name, got, ok, out.Len(), errOut.Len())
		}
	}
}

// parts counts the writes of a stream.
type parts struct {
	bytes.Buffer
	writes int
}

func (p *parts) Write(b []byte) (int, error) {
	p.writes++
	return p.Buffer.Write(b)
}

func TestGatheredFramesArriveTogether(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 20_000, 50_000} {
		var stream parts
		w := wire.NewWriter(&stream)
		w.Gather()
		text := strings.Repeat("x", size)
		for _, to := range []io.Writer{w.Stdout(), w.Stderr(), w.Stdout()} {
			if _, err := io.WriteString(to, text); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Result(wire.Result{ExitCode: 3}); err != nil {
			t.Fatal(err)
		}
		if want := 1 + 3*size/(32<<10); stream.writes > want {
			t.Errorf("3 pieces of %d bytes and the result arrive in %d parts, want at most %d", size, stream.writes, want)
		}
		var out, errOut bytes.Buffer
		d := &wire.Demux{Stdout: &out, Stderr: &errOut}
		if _, err := d.Write(stream.Bytes()); err != nil {
			t.Fatal(err)
		}
		if r, ok := d.Result(); !ok || r.ExitCode != 3 || out.String() != text+text || errOut.String() != text {
			t.Errorf("result %+v (%t), %d and %d bytes", r, ok, out.Len(), errOut.Len())
		}
	}
}

func TestAStreamWithoutItsEndHasNoResult(t *testing.T) {
	t.Parallel()
	stream, _ := conversation(t)
	for _, n := range []int{0, 3, 100, len(stream) - 1} {
		d := &wire.Demux{}
		if _, err := d.Write(stream[:n]); err != nil {
			t.Fatal(err)
		}
		if r, ok := d.Result(); ok {
			t.Errorf("%d of %d bytes have the result %+v", n, len(stream), r)
		}
	}
}

func TestWhatIsNotTheProtocolIsRefused(t *testing.T) {
	t.Parallel()
	stream, _ := conversation(t)
	for name, input := range map[string][]byte{
		"more after the result": append(bytes.Clone(stream), stream...),
		"a result of 16 MiB":    {3, 1, 0, 0, 0},
		"a result not in JSON":  {3, 0, 0, 0, 1, '?'},
	} {
		if _, err := (&wire.Demux{}).Write(input); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	later := append([]byte{9, 0, 0, 0, 2, 'h', 'i'}, stream...) // a kind of a later release
	d := &wire.Demux{}
	if _, err := d.Write(later); err != nil {
		t.Errorf("a kind of a later release: %v", err)
	}
	if _, ok := d.Result(); !ok {
		t.Error("the result after a kind of a later release is lost")
	}
}
