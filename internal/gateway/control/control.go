// Package control is the gateway's control interface: HTTP on a unix socket that no sandbox sees. The gateway
// stores its settings in files next to that socket, so that it continues after a restart.
//
//	control/control.sock        this interface
//	control/settings.json       what is allowed, and the upstream proxy
//	control/sandboxes/<id>.json
//	control/authority/          the authority that sandboxes with credentials trust
//	control/attempts/*.jsonl    the latest attempts of sandboxes to reach the network
//	s/<id>/proxy.sock           a sandbox's proxy socket; it sees only this directory
package control

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Paths below the gateway's root.
const (
	// Dir is a directory that no sandbox sees. Socket is in it.
	Dir    = "control"
	Socket = "control.sock"
	// ProxySocket is the name of a sandbox's socket in its directory.
	ProxySocket = "proxy.sock"

	settingsFile = "settings.json"
	sandboxesDir = "sandboxes"
	attemptsDir  = "attempts"
	callsDir     = "llm"
	authorityDir = "authority"
	servedDir    = "s"
)

// SandboxDir returns a sandbox's directory, relative to the gateway's root.
func SandboxDir(id string) string { return servedDir + "/" + id }

// AttemptsDir returns the directory of attempts below a gateway's root.
func AttemptsDir(root string) string { return filepath.Join(root, Dir, attemptsDir) }

// CallsDir returns the directory of the LLM broker's journal below a gateway's root.
func CallsDir(root string) string { return filepath.Join(root, Dir, callsDir) }

// AuthorityDir returns the directory of the gateway's authority below a gateway's root.
func AuthorityDir(root string) string { return filepath.Join(root, Dir, authorityDir) }

// Settings apply to all sandboxes of a gateway.
type Settings struct {
	Egress   sandbox.Egress `json:"egress"`
	Upstream *Upstream      `json:"upstream,omitempty"`
}

// Upstream is an HTTP proxy for the gateway itself.
type Upstream struct {
	// URL may contain a user and a password.
	URL string `json:"url"`
	// CA is the CA of an https proxy, in PEM. It replaces the public ones.
	CA string `json:"ca,omitempty"`
}

// Hash identifies the settings.
func (s Settings) Hash() (string, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8]), nil
}

// Sandbox is a sandbox that may use the gateway.
type Sandbox struct {
	ID string `json:"id"`
	// Agent is the agent of the sandbox; empty while it waits in a warm pool.
	Agent string `json:"agent,omitempty"`
	// Lease and Generation are the agent's lease. Without a lease, the sandbox cannot make LLM calls.
	Lease      string `json:"lease,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	// Trusts means that the sandbox was created with the gateway's authority, whose files are in its directory.
	Trusts bool `json:"trusts,omitempty"`
}

func (s Sandbox) served() proxy.Sandbox {
	caller := llm.Caller{Sandbox: s.ID, Agent: s.Agent, Lease: s.Lease, Generation: s.Generation}
	return proxy.Sandbox{Caller: caller, Trusts: s.Trusts}
}

var sandboxID = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func (s Sandbox) validate() error {
	if !sandboxID.MatchString(s.ID) {
		return fmt.Errorf("sandbox id %q is not a valid directory name", s.ID)
	}
	if len(s.Agent) > 512 {
		return fmt.Errorf("the agent of sandbox %s has more than 512 bytes", s.ID)
	}
	if len(s.Lease) > 1024 {
		return fmt.Errorf("the lease of sandbox %s has more than 1024 bytes", s.ID)
	}
	return nil
}

// Attempts are lines of the log of attempts, with records of package audit.
type Attempts struct {
	Entries []audit.Entry `json:"entries"`
}

// Status is the current state of a gateway.
type Status struct {
	proxy.Status
	// Settings is the hash of the current settings, "" if there are none.
	Settings string   `json:"settings"`
	IDs      []string `json:"ids"` // ids of the sandboxes, sorted
	// LLM is the state of the LLM broker.
	LLM LLMStatus `json:"llm"`
	// Credentials are the hosts with a credential, sorted.
	Credentials []string `json:"credentials"`
}

// LLMStatus is the state of the LLM broker.
type LLMStatus = llm.Status

// Calls are the oldest lines of the LLM journal after a position.
type Calls struct {
	Entries []llm.Entry `json:"entries"`
}
