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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// gatewayClient is the connection to one gateway. It is opened on demand, and again when it breaks.
type gatewayClient struct{ client *control.Client }

// gatewayClientOf returns the client of an environment's gateway.
func (e *Executor) gatewayClientOf(ref driver.EnvironmentRef) *gatewayClient {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, ok := e.gatewayClients[ref]
	if !ok {
		l = &gatewayClient{control.NewClient(func(ctx context.Context) (net.Conn, error) { return e.dialGateway(ctx, ref) })}
		e.gatewayClients[ref] = l
	}
	return l
}

// closeGatewayClient closes the connection to a gateway.
func (e *Executor) closeGatewayClient(ref driver.EnvironmentRef) {
	e.mu.Lock()
	l := e.gatewayClients[ref]
	delete(e.gatewayClients, ref)
	e.mu.Unlock()
	if l != nil {
		l.client.Close()
	}
}

// callGateway calls the gateway. It starts a missing gateway first, and waits for one that has just started.
// Errors: Failed if the gateway refuses, Unavailable if it does not answer, NotFound as createGateway.
func (e *Executor) callGateway(ctx context.Context, ref driver.EnvironmentRef, what string,
	do func(context.Context, *control.Client) error) error {
	l := e.gatewayClientOf(ref)
	var last error
	err := await(ctx, "gateway "+objects.GatewayName(ref)+" answers", gatewayStart, func(ctx context.Context) (bool, error) {
		limited, cancel := context.WithTimeout(ctx, readLimit)
		defer cancel()
		last = do(limited, l.client)
		switch {
		case last == nil:
			return true, nil
		case errors.Is(last, control.ErrRefused):
			return false, sandbox.Errorf(sandbox.Failed, "docker: gateway of environment %s: %s: %w",
				ref.EnvironmentID, what, last)
		default:
			return false, e.startGateway(ctx, ref)
		}
	})
	if isCode(err, sandbox.Timeout) {
		return sandbox.Errorf(sandbox.Unavailable,
			"docker: gateway of environment %s: %s: it does not answer, so its sandboxes have no network (see docker logs "+
				"%s): %w",
			ref.EnvironmentID, what, objects.GatewayName(ref), errors.Join(last, err))
	}
	return err
}

// dialGateway connects to a gateway's control socket: directly if the engine's volumes are on this machine
// and readable, otherwise through a command that the engine runs in the gateway.
func (e *Executor) dialGateway(ctx context.Context, ref driver.EnvironmentRef) (net.Conn, error) {
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

// egressDir returns the path of the gateway's volume on the engine's host.
func (e *Executor) egressDir(ctx context.Context, ref driver.EnvironmentRef) (string, error) {
	v, err := e.findVolume(ctx, objects.EgressVolume(ref), objects.EnvironmentLabels(ref, objects.RoleEgress))
	return v.Mountpoint, err
}

// dialIn connects to a socket in a directory whose path may exceed the 108 bytes of a socket address.
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
	return e.execIn(ctx, objects.GatewayName(ref), gateway.Path, "relay", "-root", gateway.Root)
}

// maxDiagnostics limits the retained error output of a program, in bytes.
const maxDiagnostics = 4 << 10

// hijack opens the streams of an exec. The client ignores ctx after it has connected, so a call to a hanging
// engine is abandoned.
func (e *Executor) hijack(ctx context.Context, execID string) (dockerapi.HijackedResponse, error) {
	type answer struct {
		conn dockerapi.HijackedResponse
		err  error
	}
	answers := make(chan answer)
	go func() { // it ends when the engine answers or closes the connection
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

// execIn runs a command in one of our containers and returns its standard input and output.
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
	conn, err := fetch(ctx, e, r,
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
