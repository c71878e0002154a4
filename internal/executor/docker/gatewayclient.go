package docker

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
	err := engine.Await(ctx, "gateway "+objects.GatewayName(ref)+" answers", gatewayStart, func(ctx context.Context) (bool, error) {
		limited, cancel := context.WithTimeout(ctx, engine.ReadLimit)
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
	if sandbox.CodeOf(err) == sandbox.Timeout {
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
	if e.engine.IsLocal() {
		if conn, err := engine.DialIn(ctx, filepath.Join(dir, control.Dir), control.Socket); err == nil {
			return conn, nil
		}
	}
	return e.relay(ctx, ref)
}

// egressDir returns the path of the gateway's volume on the engine's host.
func (e *Executor) egressDir(ctx context.Context, ref driver.EnvironmentRef) (string, error) {
	v, err := e.engine.Volume(ctx, objects.EgressVolume(ref), objects.EnvironmentLabels(ref, objects.RoleEgress))
	return v.Mountpoint, err
}

// relay connects to the control socket through the engine.
func (e *Executor) relay(ctx context.Context, ref driver.EnvironmentRef) (net.Conn, error) {
	return e.engine.ExecIn(ctx, objects.GatewayName(ref), gateway.Path, "relay", "-root", gateway.Root)
}
