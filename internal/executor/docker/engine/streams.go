package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// DialIn connects to a socket in a directory whose path may exceed the 108 bytes of a socket address.
func DialIn(ctx context.Context, dir, name string) (net.Conn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
}

// maxDiagnostics limits the error output that is kept of a program, in bytes.
const maxDiagnostics = 4 << 10

// hijack opens the streams of an exec. The client ignores ctx after it has connected, so hijack abandons a call to a
// hanging engine.
func (e *Engine) hijack(ctx context.Context, execID string) (dockerapi.HijackedResponse, error) {
	type answer struct {
		conn dockerapi.HijackedResponse
		err  error
	}
	answers := make(chan answer)
	go func() { // it ends when the engine answers or closes the connection
		conn, err := e.API.ContainerExecAttach(ctx, execID, dockerapi.ExecAttachOptions{})
		select {
		case answers <- answer{conn, err}:
		case <-ctx.Done():
			if err == nil {
				conn.Close()
			}
		}
	}()
	select {
	case a := <-answers:
		return a.conn, a.err
	case <-ctx.Done():
		return dockerapi.HijackedResponse{}, ctx.Err()
	}
}

// ExecIn runs a command in one of our containers and returns its standard input and output.
func (e *Engine) ExecIn(ctx context.Context, container string, command ...string) (net.Conn, error) {
	r := Change("run "+command[0]+" in", container, sandbox.ReasonExecFailed)
	made, err := Fetch(ctx, e, r, func(ctx context.Context) (dockerapi.ExecCreateResponse, error) {
		return e.API.ContainerExecCreate(ctx, container, dockerapi.ExecOptions{
			Cmd: command, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		})
	})
	if err != nil {
		return nil, err
	}
	r.once = true
	conn, err := Fetch(ctx, e, r,
		func(ctx context.Context) (dockerapi.HijackedResponse, error) { return e.hijack(ctx, made.ID) })
	if err != nil {
		return nil, err
	}
	return &relayed{Conn: conn.Conn, in: conn.Reader}, nil
}

// relayed is a connection through a command's standard input and output. The engine sends frames with a
// header of 8 bytes (stdcopy).
type relayed struct {
	net.Conn
	in   io.Reader
	left int // bytes left in the frame
}

func (r *relayed) Read(p []byte) (int, error) {
	for r.left == 0 {
		var header [8]byte
		if _, err := io.ReadFull(r.in, header[:]); err != nil {
			return 0, err
		}
		n := int(binary.BigEndian.Uint32(header[4:]))
		if dockerapi.StdType(header[0]) == dockerapi.Stdout {
			r.left = n
			continue
		}
		complaint, err := io.ReadAll(io.LimitReader(r.in, int64(min(n, maxDiagnostics))))
		if err == nil {
			err = fmt.Errorf("the command ended: %s", strings.TrimSpace(string(complaint)))
		}
		return 0, err
	}
	n, err := r.in.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}
