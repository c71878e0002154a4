package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// link is the line to one gateway. It is made when it is needed, and again when it breaks.
type link struct{ client *control.Client }

// linkTo returns the line to an environment's gateway.
func (e *Executor) linkTo(ref driver.EnvironmentRef) *link {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, ok := e.links[ref]
	if !ok {
		l = &link{control.NewClient(func(ctx context.Context) (net.Conn, error) { return e.call(ctx, ref) })}
		e.links[ref] = l
	}
	return l
}

// hangUp closes the line to a gateway.
func (e *Executor) hangUp(ref driver.EnvironmentRef) {
	e.mu.Lock()
	l := e.links[ref]
	delete(e.links, ref)
	e.mu.Unlock()
	if l != nil {
		l.client.Close()
	}
}

// tell has the gateway do something. A gateway that is not there is started first; one that has just
// started needs a moment. Errors: Failed when the gateway refuses, Unavailable when it does not answer.
func (e *Executor) tell(ctx context.Context, ref driver.EnvironmentRef, what string, do func(context.Context, *control.Client) error) error {
	l := e.linkTo(ref)
	var last error
	err := await(ctx, "gateway "+gatewayName(ref)+" answers", gatewayStart, func(ctx context.Context) (bool, error) {
		limited, cancel := context.WithTimeout(ctx, readLimit)
		defer cancel()
		last = do(limited, l.client)
		switch {
		case last == nil:
			return true, nil
		case errors.Is(last, control.ErrRefused):
			return false, sandbox.Errorf(sandbox.Failed, "docker: gateway of environment %s: %s: %w", ref.EnvironmentID, what, last)
		default:
			return false, e.startGateway(ctx, ref)
		}
	})
	if isCode(err, sandbox.Timeout) {
		return sandbox.Errorf(sandbox.Unavailable, "docker: gateway of environment %s: %s: it does not answer, so its sandboxes are cut off (docker logs %s): %w",
			ref.EnvironmentID, what, gatewayName(ref), errors.Join(last, err))
	}
	return err
}

// call connects to a gateway's control socket: as a file where the engine's volumes are this
// machine's and this program may see them, else through a command that the engine runs in the gateway.
func (e *Executor) call(ctx context.Context, ref driver.EnvironmentRef) (net.Conn, error) {
	dir, err := e.egressDir(ctx, ref)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(e.api.DaemonHost(), "unix://") {
		if conn, err := dialIn(ctx, filepath.Join(dir, control.Dir), control.Socket); err == nil {
			return conn, nil
		}
	}
	return e.relay(ctx, ref)
}

// egressDir returns where the gateway's volume is on the engine's host.
func (e *Executor) egressDir(ctx context.Context, ref driver.EnvironmentRef) (string, error) {
	v, err := fetch(ctx, e, read("look for volume", egressVolume(ref)), func(ctx context.Context) (dockerapi.Volume, error) {
		return e.api.VolumeInspect(ctx, egressVolume(ref))
	})
	if err == nil {
		err = e.checkLabels("volume", v.Name, v.Labels, environmentLabels(ref, roleEgress))
	}
	return v.Mountpoint, err
}

// dialIn connects to a socket in a directory whose path may be too long for a socket's address, which
// has 108 bytes.
func dialIn(ctx context.Context, dir, name string) (net.Conn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name))
}

// relay connects to the control socket through the engine.
func (e *Executor) relay(ctx context.Context, ref driver.EnvironmentRef) (net.Conn, error) {
	return e.execIn(ctx, gatewayName(ref), gateway.Path, "relay", "-root", gateway.Root)
}

// maxDiagnostics bounds what is kept of a program's own complaints, in bytes.
const maxDiagnostics = 4 << 10

// hijack opens the streams of an exec. The client does not heed ctx once it has connected, so a
// hanging engine is left to itself.
func (e *Executor) hijack(ctx context.Context, execID string) (dockerapi.HijackedResponse, error) {
	type answer struct {
		conn dockerapi.HijackedResponse
		err  error
	}
	answers := make(chan answer)
	go func() { // ends when the engine answers or closes the connection
		conn, err := e.api.ContainerExecAttach(ctx, execID, dockerapi.ExecAttachOptions{})
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

// execIn runs a command in a container of ours, and returns its standard input and output.
func (e *Executor) execIn(ctx context.Context, container string, command ...string) (net.Conn, error) {
	r := change("run "+command[0]+" in", container, sandbox.ReasonExecFailed)
	made, err := fetch(ctx, e, r, func(ctx context.Context) (dockerapi.ExecCreateResponse, error) {
		return e.api.ContainerExecCreate(ctx, container, dockerapi.ExecOptions{
			Cmd: command, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		})
	})
	if err != nil {
		return nil, err
	}
	r.once = true
	conn, err := fetch(ctx, e, r, func(ctx context.Context) (dockerapi.HijackedResponse, error) { return e.hijack(ctx, made.ID) })
	if err != nil {
		return nil, err
	}
	return &relayed{Conn: conn.Conn, in: conn.Reader}, nil
}

// relayed is a connection through a command's standard input and output, which the engine sends in
// frames of 8 bytes of header and content (stdcopy).
type relayed struct {
	net.Conn
	in   io.Reader
	left int // of the frame
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
