package docker

import (
	"context"
	"errors"
	"net"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// relayStart bounds the wait until a relay that was started answers.
const relayStart = changeLimit

// relayLimit bounds one request to a relay, which answers at once: then it is looked at.
const relayLimit = 5 * time.Second

// relayLink is the line to one relay. Its connections are made when they are needed.
type relayLink struct {
	*relay.Client

	mu  sync.Mutex
	dir string // of the volume on the engine's host; "" before it was asked for
}

// linkToRelay returns the line to a ledger's relay.
func (e *Executor) linkToRelay(r relayRef) *relayLink {
	e.mu.Lock()
	defer e.mu.Unlock()
	l, ok := e.relays[r]
	if !ok {
		l = &relayLink{}
		l.Client = relay.NewClient(
			func(ctx context.Context) (net.Conn, error) { return e.callRelay(ctx, r, l) },
			func(ctx context.Context) (net.Conn, error) { return e.execRelay(ctx, r) })
		e.relays[r] = l
	}
	return l
}

// leaveRelay closes the line to a relay.
func (e *Executor) leaveRelay(r relayRef) {
	e.mu.Lock()
	l := e.relays[r]
	delete(e.relays, r)
	e.mu.Unlock()
	if l != nil {
		_ = l.Close() // the connection of a command, whose end is all that is wanted
	}
}

// tellRelay makes a relay do something. A relay that is not there is started first; one that has just started needs a
// moment. Errors: Failed when the relay refuses, Unavailable when it does not answer.
func (e *Executor) tellRelay(ctx context.Context, r relayRef, what string, do func(context.Context, *relay.Client) error) error {
	l := e.linkToRelay(r)
	var last error
	err := await(ctx, "relay "+r.name()+" answers", relayStart, func(ctx context.Context) (bool, error) {
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
	if isCode(err, sandbox.Timeout) {
		return sandbox.Errorf(sandbox.Unavailable, "docker: %s: the relay does not answer, so no sandbox of ledger %s is reached (docker logs %s): %w",
			what, r.ledgerID, r.name(), errors.Join(last, err))
	}
	return err
}

// admitChannel makes the directory that a sandbox's channel is in, with the files of its accounts, before its container is
// made. It returns how the sandbox mounts them.
func (e *Executor) admitChannel(ctx context.Context, h driver.Handle, files relay.Accounts) ([]dockerapi.Mount, error) {
	r := relayOf(h)
	err := e.tellRelay(ctx, r, "make the channel of sandbox "+h.SandboxID, func(ctx context.Context, c *relay.Client) error {
		return c.Add(ctx, h.SandboxID, files)
	})
	if err != nil {
		return nil, err
	}
	volume, err := e.channelsDir(ctx, r, e.linkToRelay(r))
	if err != nil {
		return nil, err
	}
	dir := path.Join(volume, relay.SandboxDir(h.SandboxID))
	return append(accountMounts(dir, files), channelMount(dir)), nil
}

// closeChannel closes the connections of a sandbox and removes its directory, if its ledger has a relay.
func (e *Executor) closeChannel(ctx context.Context, h driver.Handle) error {
	e.channels.leave(h)
	r := relayOf(h)
	_, err := e.channelsDir(ctx, r, &relayLink{}) // not what was known before: it may have gone
	if isCode(err, sandbox.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return e.tellRelay(ctx, r, "close the channel of sandbox "+h.SandboxID, func(ctx context.Context, c *relay.Client) error {
		return c.Remove(ctx, h.SandboxID)
	})
}

// endByChannel makes process 1 of a sandbox end, which needs nothing of the engine.
func (e *Executor) endByChannel(ctx context.Context, h driver.Handle) error {
	return e.linkToRelay(relayOf(h)).End(ctx, h.SandboxID)
}

// channelMount shows a sandbox its channel. A missing directory is an error of this kind of mount, and is not made.
func channelMount(dir string) dockerapi.Mount {
	return dockerapi.Mount{Type: dockerapi.MountTypeBind, Source: dir, Target: guest.ChannelDir, ReadOnly: true}
}

func listsChannel(c dockerapi.ContainerSummary) bool { return lists(c, guest.ChannelDir) }

// channelsDir returns where the relay's volume is on the engine's host. It asks once.
func (e *Executor) channelsDir(ctx context.Context, r relayRef, l *relayLink) (string, error) {
	l.mu.Lock()
	dir := l.dir
	l.mu.Unlock()
	if dir != "" {
		return dir, nil
	}
	v, err := fetch(ctx, e, read("look for volume", r.volume()), func(ctx context.Context) (dockerapi.Volume, error) {
		return e.api.VolumeInspect(ctx, r.volume())
	})
	if err == nil {
		err = e.checkLabels("volume", v.Name, v.Labels, r.labels(roleChannels))
	}
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dir = v.Mountpoint
	return v.Mountpoint, nil
}

// callRelay connects to the control socket as a file, where the engine's volumes are this machine's and this program may
// see them.
func (e *Executor) callRelay(ctx context.Context, r relayRef, l *relayLink) (net.Conn, error) {
	if !strings.HasPrefix(e.api.DaemonHost(), "unix://") {
		return nil, errors.New("the engine may be on another machine")
	}
	dir, err := e.channelsDir(ctx, r, l)
	if err != nil {
		return nil, err
	}
	return dialIn(ctx, filepath.Join(dir, relay.ControlDir), relay.ControlSocket)
}

// execRelay connects to the control socket through a command that the engine runs in the relay's container.
func (e *Executor) execRelay(ctx context.Context, r relayRef) (net.Conn, error) {
	if _, err := e.lookUpRelay(ctx, r); err != nil {
		return nil, err
	}
	return e.execIn(ctx, r.name(), relay.Path, "relay", "connect", "-root", relay.Root)
}
