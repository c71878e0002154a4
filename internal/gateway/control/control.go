// Package control is how the gateway is told what to do: HTTP on a unix socket of its own, which no
// sandbox sees. What it is told is kept in files beside that socket, so a gateway that starts again
// goes on by itself.
//
//	control/control.sock        this interface
//	control/settings.json       what is allowed, and the upstream proxy
//	control/sandboxes/<id>.json
//	control/attempts/*.jsonl    the latest attempts of sandboxes to get out
//	s/<id>/proxy.sock           a sandbox's way out; its directory is all of this that it sees
package control

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Paths below the gateway's root.
const (
	// Dir holds what no sandbox sees, Socket among it.
	Dir    = "control"
	Socket = "control.sock"
	// ProxySocket is the name of a sandbox's socket in its directory.
	ProxySocket = "proxy.sock"

	settingsFile = "settings.json"
	sandboxesDir = "sandboxes"
	attemptsDir  = "attempts"
	servedDir    = "s"
)

// SandboxDir returns a sandbox's directory, relative to the gateway's root.
func SandboxDir(id string) string { return servedDir + "/" + id }

// AttemptsDir returns where the gateway keeps attempts, below its root.
func AttemptsDir(root string) string { return filepath.Join(root, Dir, attemptsDir) }

// Settings are what a gateway does for all of its sandboxes.
type Settings struct {
	Egress   sandbox.Egress `json:"egress"`
	Upstream *Upstream      `json:"upstream,omitempty"`
}

// Upstream is an HTTP proxy that the gateway itself goes through.
type Upstream struct {
	// URL may hold a user and a password.
	URL string `json:"url"`
	// CA vouches for an https proxy, in PEM, in place of public authorities.
	CA string `json:"ca,omitempty"`
}

// Hash stands for the settings.
func (s Settings) Hash() (string, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8]), nil
}

// Sandbox is one that may go out.
type Sandbox struct {
	ID string `json:"id"`
	// Agent is who it works for; empty while it waits in a warm pool.
	Agent string `json:"agent,omitempty"`
}

var sandboxID = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func (s Sandbox) validate() error {
	if !sandboxID.MatchString(s.ID) {
		return fmt.Errorf("sandbox id %q cannot be the name of a directory", s.ID)
	}
	if len(s.Agent) > 512 {
		return fmt.Errorf("the agent of sandbox %s has more than 512 bytes", s.ID)
	}
	return nil
}

// Attempts are lines of the log of attempts, whose records are those of package audit.
type Attempts struct {
	Entries []audit.Entry `json:"entries"`
}

// Status is what a gateway is doing.
type Status struct {
	proxy.Status
	// Settings is the hash of those that apply, "" before there are any.
	Settings string   `json:"settings"`
	IDs      []string `json:"ids"` // of the sandboxes, sorted
}
