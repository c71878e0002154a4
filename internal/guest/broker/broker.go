//go:build linux

package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/files"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/identity"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/keeper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/memory"
)

const (
	// minBackoff and maxBackoff bound the pause between two attempts to reach the relay.
	minBackoff, maxBackoff = 50 * time.Millisecond, time.Second
	dialLimit              = 5 * time.Second
)

// Config is the keeper's configuration of its broker.
type Config struct {
	UID, GID int // user and group of the sandbox
	// OwnUID means that the sandbox has a separate user.
	OwnUID bool
	// AllowRoot means that commands may run as user 0.
	AllowRoot bool
	Life      string // life of the sandbox, see channel.ServerConfig
	Channel   string // the socket to dial, "" for none
	Egress    string // wire.Egress as JSON, "" for none
	Port      bool   // the broker inherits a listener and a key
}

// ownProc protects this process's files in /proc from sandbox code, as the keeper does. A change of a
// thread's identity undoes it.
func (cfg Config) ownProc() error {
	dumpable := uintptr(0)
	if cfg.UID == 0 || cfg.AllowRoot {
		dumpable = 1
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, dumpable, 0, 0, 0)
}

// Run runs a broker. It returns when the link to the keeper ends.
func Run(cfg Config) error {
	if err := cfg.ownProc(); err != nil {
		return fmt.Errorf("protect the broker's files in /proc: %w", err)
	}
	conn, err := link.New(os.NewFile(keeper.LinkDescriptor, "link"))
	if err != nil {
		return err
	}
	if cfg.Egress != "" {
		if err := egress.Forward(cfg.Egress); err != nil {
			return fmt.Errorf("forward to the gateway: %w", err)
		}
	}
	parent := newParent(conn)
	b := &broker{
		cfg:    cfg,
		keeper: parent,
		memory: memory.NewTidier(),
		files:  files.New(files.Identity{UID: cfg.UID, GID: cfg.GID}).Within(parent.space),
		saver:  files.New(files.Identity{UID: cfg.UID, GID: cfg.GID, All: cfg.Port}),
		own:    identity.NewWorkers(cfg.UID, cfg.GID, cfg.ownProc),
	}
	server := channel.NewServer(b.handle, channel.ServerConfig{Journal: b.keeper, Life: cfg.Life})
	ctx, cancel := context.WithCancel(context.Background())
	var dialing sync.WaitGroup
	if cfg.Port {
		if err := b.listen(ctx, server, &dialing); err != nil {
			cancel()
			return errors.Join(err, server.Close())
		}
	}
	if cfg.Channel != "" {
		dialing.Go(func() { park(ctx, cfg.Channel, server) })
	}
	err = b.keeper.receive()
	cancel()
	dialing.Wait()
	err = errors.Join(err, server.Close())
	b.own.Close()
	return err
}

// park keeps one unused connection to the relay. Once a client uses it, the server serves it, and park opens the next.
func park(ctx context.Context, socket string, server *channel.Server) {
	var serving sync.WaitGroup
	defer serving.Wait()
	dialer := net.Dialer{Timeout: dialLimit}
	backoff := minBackoff
	for ctx.Err() == nil {
		conn, err := dialer.DialContext(ctx, "unix", socket)
		if err == nil {
			c := &carrier{Conn: conn, taken: make(chan bool, 1)}
			serving.Go(func() {
				_ = server.Serve(ctx, c) // the client sees the broken carrier
				c.note(false)
			})
			if <-c.taken {
				backoff = minBackoff
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// carrier signals the arrival of its first byte.
type carrier struct {
	net.Conn
	once  sync.Once
	taken chan bool
}

// Read implements net.Conn.
func (c *carrier) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.note(true)
	}
	return n, err
}

func (c *carrier) note(taken bool) { c.once.Do(func() { c.taken <- taken }) }
