//go:build linux

package broker

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/verifier"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (b *broker) identity() sandbox.Identity {
	return sandbox.Identity{UID: b.cfg.UID, GID: b.cfg.GID, Own: b.cfg.OwnUID}
}

// verifies reports whether an id is the verifier's.
func (b *broker) verifies(id int) bool {
	is, own := b.identity().Verifier()
	return own && id == is
}

// resolveVerifier resolves a verifier's request. It does not look up the program: that happens once the sandbox is
// frozen.
func (b *broker) resolveVerifier(c link.Command, e *channel.Exec) (link.Command, *os.File, error) {
	id, own := b.identity().Verifier()
	switch {
	case !own:
		return c, nil, errors.New("a verifier requires a sandbox with a separate user: remove confinement.user from the " +
			"environment")
	case e.User != "" || e.Shell:
		return c, nil, errors.New("a verifier has a separate user and runs a program: set neither user nor " +
			"shell")
	}
	self, err := os.Executable()
	if err != nil {
		return c, nil, fmt.Errorf("find the guest: %w", err)
	}
	c.UID, c.GID, c.Path = id, id, self
	c.Env = environ(e.Env)
	if len(e.Args) == 0 {
		c.Failure, c.Text = exitCannotStart, "guest: the command is empty\n"
	}
	run := verifier.Run{Home: verifier.NewHome(), Cwd: e.Cwd, Given: slices.Sorted(maps.Keys(e.Env)), Args: e.Args}
	c.Args = append([]string{"guest"}, run.Arguments()...)
	c.Verifier = &link.Verifier{Groups: []uint32{uint32(b.cfg.GID)}, Clean: append([]string{"guest"}, run.Cleaning()...)}
	root, err := os.Open("/")
	if err != nil {
		return c, nil, fmt.Errorf("open the root: %w", err)
	}
	return c, root, nil
}
