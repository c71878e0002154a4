package relays

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

// startLimit limits the wait for a started relay to answer.
const startLimit = engine.ChangeLimit

// callLimit limits one request to a relay. A relay answers immediately, so a slow one is inspected.
const callLimit = 5 * time.Second

// client is the client of one relay. It connects on demand.
type client struct {
	*relay.Client

	mu  sync.Mutex
	dir string // the volume's directory on the engine's host; "" until it is read
}

// clientOf returns the client of a ledger's relay.
func (rs *Relays) clientOf(r ref) *client {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	l, ok := rs.clients[r]
	if !ok {
		l = &client{}
		l.Client = relay.NewClient(
			func(ctx context.Context) (net.Conn, error) { return rs.dialDirect(ctx, r, l) },
			func(ctx context.Context) (net.Conn, error) { return rs.dialByExec(ctx, r) })
		rs.clients[r] = l
	}
	return l
}

// leave closes the client of a relay.
func (rs *Relays) leave(r ref) {
	rs.mu.Lock()
	l := rs.clients[r]
	delete(rs.clients, r)
	rs.mu.Unlock()
	if l != nil {
		_ = l.Close() // the error of a command that is ending anyway
	}
}

// call calls a relay. It starts a missing relay first, and waits for one that has just started. Errors: Failed if the
// relay refuses; Unavailable if it does not answer; NotFound as for revive.
func (rs *Relays) call(ctx context.Context, r ref, what string,
	do func(context.Context, *relay.Client) error) error {
	l := rs.clientOf(r)
	var last error
	err := engine.Await(ctx, "relay "+r.name()+" answers", startLimit, func(ctx context.Context) (bool, error) {
		limited, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		last = do(limited, l.Client)
		switch {
		case last == nil:
			return true, nil
		case errors.Is(last, relay.ErrRefused):
			return false, sandbox.Errorf(sandbox.Failed, "docker: %s: %w", what, last)
		default:
			return false, rs.revive(ctx, r)
		}
	})
	if sandbox.CodeOf(err) == sandbox.Timeout {
		return sandbox.Errorf(sandbox.Unavailable,
			"docker: %s: the relay does not answer, so no sandbox of ledger %s can be reached (see docker logs %s): %w",
			what, r.ledgerID, r.name(), errors.Join(last, err))
	}
	return err
}

// Admit creates the directory of a sandbox's channel, with the files of its accounts. It returns the sandbox's mounts
// of them. It must precede the creation of the sandbox's container.
func (rs *Relays) Admit(ctx context.Context, h driver.Handle, files relay.Accounts) ([]dockerapi.Mount, error) {
	r := refOf(h)
	err := rs.call(ctx, r, "make the channel of sandbox "+h.SandboxID,
		func(ctx context.Context, c *relay.Client) error {
			return c.Add(ctx, objects.OwnID(h), files)
		})
	if err != nil {
		return nil, err
	}
	volume, err := rs.channelsDir(ctx, r, rs.clientOf(r))
	if err != nil {
		return nil, err
	}
	dir := path.Join(volume, relay.SandboxDir(objects.OwnID(h)))
	return append(accountMounts(dir, files), channelMount(dir)), nil
}

// CloseChannel closes the connections of a sandbox and removes its directory if its ledger has a relay.
func (rs *Relays) CloseChannel(ctx context.Context, h driver.Handle) error {
	r := refOf(h)
	_, err := rs.channelsDir(ctx, r, &client{}) // without the cache: the volume may be gone
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	err = rs.call(ctx, r, "close the channel of sandbox "+h.SandboxID,
		func(ctx context.Context, c *relay.Client) error {
			return c.Remove(ctx, objects.OwnID(h))
		})
	if sandbox.CodeOf(err) == sandbox.NotFound { // the ledger's last environment was removed meanwhile
		return nil
	}
	return err
}

// End ends process 1 of a sandbox without the engine.
func (rs *Relays) End(ctx context.Context, h driver.Handle) error {
	return rs.clientOf(refOf(h)).End(ctx, objects.OwnID(h))
}

// channelMount mounts the channel in a sandbox. With this kind of mount, the engine reports a missing directory instead
// of creating it.
func channelMount(dir string) dockerapi.Mount {
	return dockerapi.Mount{Type: dockerapi.MountTypeBind, Source: dir, Target: guest.ChannelDir, ReadOnly: true}
}

// channelsDir returns the path of the relay's volume on the engine's host. It reads it once.
func (rs *Relays) channelsDir(ctx context.Context, r ref, l *client) (string, error) {
	l.mu.Lock()
	dir := l.dir
	l.mu.Unlock()
	if dir != "" {
		return dir, nil
	}
	v, err := rs.engine.Volume(ctx, r.volume(), r.labels(objects.RoleChannels))
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dir = v.Mountpoint
	return v.Mountpoint, nil
}

// dialDirect connects directly to the control socket if the engine's volumes are on this machine and readable.
func (rs *Relays) dialDirect(ctx context.Context, r ref, l *client) (net.Conn, error) {
	if !rs.engine.IsLocal() {
		return nil, errors.New("the engine may be on another machine")
	}
	dir, err := rs.channelsDir(ctx, r, l)
	if err != nil {
		return nil, err
	}
	return engine.DialIn(ctx, filepath.Join(dir, relay.ControlDir), relay.ControlSocket)
}

// dialByExec connects to the control socket through a command that the engine runs in the relay's container.
func (rs *Relays) dialByExec(ctx context.Context, r ref) (net.Conn, error) {
	if _, err := rs.lookUp(ctx, r); err != nil {
		return nil, err
	}
	return rs.engine.ExecIn(ctx, r.name(), relay.Path, "relay", "connect", "-root", relay.Root)
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

// firstDial limits the first attempt to open a carrier. So a hanging relay is noticed by then.
const firstDial = 3 * time.Second

// Dial opens a carrier. If the relay does not answer soon, it starts or replaces the relay and retries
// once.
func (rs *Relays) Dial(ctx context.Context, h driver.Handle) (net.Conn, error) {
	r := refOf(h)
	conn, err := rs.dialFirst(ctx, r, objects.OwnID(h))
	if err == nil || errors.Is(err, relay.ErrRefused) || ctx.Err() != nil {
		return conn, err
	}
	if startErr := rs.revive(ctx, r); startErr != nil {
		return nil, errors.Join(err, startErr)
	}
	return rs.clientOf(r).Dial(ctx, objects.OwnID(h))
}

// dialFirst dials once, with a part of the available time.
func (rs *Relays) dialFirst(ctx context.Context, r ref, id string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, firstDial)
	defer cancel() // the connection outlives it
	return rs.clientOf(r).Dial(ctx, id)
}
