//go:build linux

package files

import (
	"context"
	"io"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Serve carries out OpPut, OpGet, OpFile and OpSecrets. It is a channel.Handler. With ReportData the result
// contains the fingerprint of /data.
//
// If ctx ends, Serve returns within a second, possibly before a Read of in or a Write to out returns. Both
// must return once the stream is closed. After that, Serve neither reads in nor writes to out.
func (w Worker) Serve(ctx context.Context, r channel.Request, in io.Reader, out *wire.Writer) wire.Result {
	res := problem(w.serve(ctx, r, in, out.Stdout()))
	if r.ReportData {
		res.Data = w.Fingerprint(ctx, sandbox.DataDir)
	}
	return res
}

func (w Worker) serve(ctx context.Context, r channel.Request, in io.Reader, out io.Writer) error {
	switch r.Op {
	case channel.OpPut:
		return w.reading(ctx, in, func(in io.Reader) error { return w.unpack(ctx, string(r.Path), in) })
	case channel.OpGet:
		return w.writing(ctx, out, func(out io.Writer) error { return w.pack(ctx, string(r.Path), out) })
	case channel.OpSecrets:
		return w.reading(ctx, in, func(in io.Reader) error { return w.storeSecrets(ctx, in) })
	case channel.OpFile:
		return w.file(ctx, r.File, in, out)
	default:
		return refuse("%q is not a file operation", r.Op)
	}
}

// reading runs work that reads an input, with the worker's identity.
func (w Worker) reading(ctx context.Context, in io.Reader, work func(in io.Reader) error) error {
	s := newSource(ctx, in)
	defer s.close()
	return w.do(func() error { return work(s) })
}

// writing runs work that writes an output, with the worker's identity.
func (w Worker) writing(ctx context.Context, out io.Writer, work func(out io.Writer) error) error {
	s := newSink(ctx, out)
	err := w.do(func() error { return work(s) })
	if closed := s.close(); err == nil {
		err = closed
	}
	return err
}
