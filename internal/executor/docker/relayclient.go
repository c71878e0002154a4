package docker

import (
	"context"
	"errors"
	"net"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/accounts"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// relayStart limits the wait for a started relay to answer.
const relayStart = engine.ChangeLimit

// relayLimit limits one request to a relay. A relay answers at once, so a slow one is inspected.
const relayLimit = 5 * time.Second

// relayClient is the client of one relay. It connects on demand.
type relayClient struct {
	*relay.Client

	mu  sync.Mutex
	dir string // of the volume on the engine's host; "" until it was read
}

// relayClientOf returns the client of a ledger's relay.
func (e *Executor) relayClientOf(r relayRef) *relayClient {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, ok := e.relays[r]
	if !ok {
		l = &relayClient{}
		l.Client = relay.NewClient(
			func(ctx context.Context) (net.Conn, error) { return e.dialRelay(ctx, r, l) },
			func(ctx context.Context) (net.Conn, error) { return e.execRelay(ctx, r) })
		e.relays[r] = l
	}
	return l
}

// leaveRelay closes the client of a relay.
func (e *Executor) leaveRelay(r relayRef) {
	e.mu.Lock()
	l := e.relays[r]
	delete(e.relays, r)
	e.mu.Unlock()
	if l != nil {
		_ = l.Close() // the connection of a command, which only has to end
	}
}

// callRelay calls a relay. It starts a missing relay first, and waits for one that has just started. Errors:
// Failed if the relay refuses, Unavailable if it does not answer, NotFound as reviveRelay.
func (e *Executor) callRelay(ctx context.Context, r relayRef, what string,
	do func(context.Context, *relay.Client) error) error {
	l := e.relayClientOf(r)
	var last error
	err := engine.Await(ctx, "relay "+r.name()+" answers", relayStart, func(ctx context.Context) (bool, error) {
		limited, cancel := context.WithTimeout(ctx, relayLimit)
		defer cancel()
		last = do(limited, l.Client)
		switch {
		case last == nil:
			return true, nil
		case errors.Is(last, relay.ErrRefused):
			return false, sandbox.Errorf(sandbox.Failed, "docker: %s: %w", what, last)
		default:
			return false, e.reviveRelay(ctx, r)
		}
	})
	if sandbox.CodeOf(err) == sandbox.Timeout {
		return sandbox.Errorf(sandbox.Unavailable,
			"docker: %s: the relay does not answer, so no sandbox of ledger %s can be reached (see docker logs %s): %w",
			what, r.ledgerID, r.name(), errors.Join(last, err))
	}
	return err
}

// admitChannel creates the directory of a sandbox's channel, with the files of its accounts, before its
// container is created. It returns the sandbox's mounts of them.
func (e *Executor) admitChannel(ctx context.Context, h driver.Handle, files relay.Accounts) ([]dockerapi.Mount, error) {
	r := relayOf(h)
	err := e.callRelay(ctx, r, "make the channel of sandbox "+h.SandboxID,
		func(ctx context.Context, c *relay.Client) error {
			return c.Add(ctx, objects.OwnID(h), files)
		})
	if err != nil {
		return nil, err
	}
	volume, err := e.channelsDir(ctx, r, e.relayClientOf(r))
	if err != nil {
		return nil, err
	}
	dir := path.Join(volume, relay.SandboxDir(objects.OwnID(h)))
	return append(accountMounts(dir, files), channelMount(dir)), nil
}

// closeChannel closes the connections of a sandbox and removes its directory, if its ledger has a relay.
func (e *Executor) closeChannel(ctx context.Context, h driver.Handle) error {
	e.channels.leave(h)
	r := relayOf(h)
	_, err := e.channelsDir(ctx, r, &relayClient{}) // not the cached one: the volume may be gone
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	err = e.callRelay(ctx, r, "close the channel of sandbox "+h.SandboxID,
		func(ctx context.Context, c *relay.Client) error {
			return c.Remove(ctx, objects.OwnID(h))
		})
	if sandbox.CodeOf(err) == sandbox.NotFound { // the ledger's last environment went meanwhile
		return nil
	}
	return err
}

// endByChannel ends process 1 of a sandbox without the engine.
func (e *Executor) endByChannel(ctx context.Context, h driver.Handle) error {
	return e.relayClientOf(relayOf(h)).End(ctx, objects.OwnID(h))
}

// channelMount mounts the channel in a sandbox. With this kind of mount, a missing directory is an error and
// is not created.
func channelMount(dir string) dockerapi.Mount {
	return dockerapi.Mount{Type: dockerapi.MountTypeBind, Source: dir, Target: guest.ChannelDir, ReadOnly: true}
}

// channelsDir returns the path of the relay's volume on the engine's host. It reads it once.
func (e *Executor) channelsDir(ctx context.Context, r relayRef, l *relayClient) (string, error) {
	l.mu.Lock()
	dir := l.dir
	l.mu.Unlock()
	if dir != "" {
		return dir, nil
	}
	v, err := e.engine.Volume(ctx, r.volume(), r.labels(objects.RoleChannels))
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dir = v.Mountpoint
	return v.Mountpoint, nil
}

// dialRelay connects to the control socket directly, if the engine's volumes are on this machine and
// readable.
func (e *Executor) dialRelay(ctx context.Context, r relayRef, l *relayClient) (net.Conn, error) {
	if !e.engine.IsLocal() {
		return nil, errors.New("the engine may be on another machine")
	}
	dir, err := e.channelsDir(ctx, r, l)
	if err != nil {
		return nil, err
	}
	return engine.DialIn(ctx, filepath.Join(dir, relay.ControlDir), relay.ControlSocket)
}

// execRelay connects to the control socket through a command that the engine runs in the relay's container.
func (e *Executor) execRelay(ctx context.Context, r relayRef) (net.Conn, error) {
	if _, err := e.lookUpRelay(ctx, r); err != nil {
		return nil, err
	}
	return e.engine.ExecIn(ctx, r.name(), relay.Path, "relay", "connect", "-root", relay.Root)
}

// accountMounts mounts the files in a sandbox's directory, by their path on the engine's host, over the
// image's.
func accountMounts(dir string, files relay.Accounts) (mounts []dockerapi.Mount) {
	for _, f := range []struct {
		name, target string
		content      []byte
	}{{relay.PasswdFile, accounts.PasswdPath, files.Passwd}, {relay.GroupFile, accounts.GroupPath, files.Group}} {
		if f.content != nil {
			mounts = append(mounts,
				dockerapi.Mount{Type: dockerapi.MountTypeBind, Source: path.Join(dir, f.name), Target: f.target, ReadOnly: true})
		}
	}
	return mounts
}
