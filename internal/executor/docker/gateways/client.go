package gateways

import (
	"context"
	"errors"
	"net"
	"path/filepath"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// clientOf returns the client of an environment's gateway. The client connects on demand, and reconnects if the
// connection breaks.
func (gs *Gateways) clientOf(ref driver.EnvironmentRef) *control.Client {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	l, ok := gs.clients[ref]
	if !ok {
		l = control.NewClient(func(ctx context.Context) (net.Conn, error) { return gs.dial(ctx, ref) })
		gs.clients[ref] = l
	}
	return l
}

// disconnect closes the connection to a gateway.
func (gs *Gateways) disconnect(ref driver.EnvironmentRef) {
	gs.mu.Lock()
	l := gs.clients[ref]
	delete(gs.clients, ref)
	gs.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

// call calls the gateway. It starts a missing gateway first, and waits for one that has just started. Errors: Failed if
// the gateway refuses; Unavailable if it does not answer; NotFound as for create.
func (gs *Gateways) call(ctx context.Context, ref driver.EnvironmentRef, what string,
	do func(context.Context, *control.Client) error) error {
	l := gs.clientOf(ref)
	var last error
	answers := "gateway " + objects.GatewayName(ref) + " answers"
	err := engine.Await(ctx, answers, startLimit, func(ctx context.Context) (bool, error) {
		limited, cancel := context.WithTimeout(ctx, engine.ReadLimit)
		defer cancel()
		last = do(limited, l)
		switch {
		case last == nil:
			return true, nil
		case errors.Is(last, control.ErrRefused):
			return false, sandbox.Errorf(sandbox.Failed, "docker: gateway of environment %s: %s: %w",
				ref.EnvironmentID, what, last)
		default:
			return false, gs.start(ctx, ref)
		}
	})
	if sandbox.CodeOf(err) == sandbox.Timeout {
		return sandbox.Errorf(sandbox.Unavailable,
			"docker: gateway of environment %s: %s: it does not answer, so its sandboxes have no network (see docker logs "+
				"%s): %w",
			ref.EnvironmentID, what, objects.GatewayName(ref), errors.Join(last, err))
	}
	return err
}

// dial connects to a gateway's control socket: directly if the engine's volumes are on this machine
// and readable, otherwise through a command that the engine runs in the gateway.
func (gs *Gateways) dial(ctx context.Context, ref driver.EnvironmentRef) (net.Conn, error) {
	dir, err := gs.volumeDir(ctx, ref)
	if err != nil {
		return nil, err
	}
	if gs.engine.IsLocal() {
		if conn, err := engine.DialIn(ctx, filepath.Join(dir, control.Dir), control.Socket); err == nil {
			return conn, nil
		}
	}
	return gs.dialByExec(ctx, ref)
}

// volumeDir returns the path of the gateway's volume on the engine's host.
func (gs *Gateways) volumeDir(ctx context.Context, ref driver.EnvironmentRef) (string, error) {
	v, err := gs.engine.Volume(ctx, objects.EgressVolume(ref), egressLabels(ref))
	return v.Mountpoint, err
}

// dialByExec connects to the control socket through the engine.
func (gs *Gateways) dialByExec(ctx context.Context, ref driver.EnvironmentRef) (net.Conn, error) {
	return gs.engine.ExecIn(ctx, objects.GatewayName(ref), gateway.Path, "relay", "-root", gateway.Root)
}
