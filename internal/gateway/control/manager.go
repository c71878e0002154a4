package control

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/wholefile"
)

// Manager carries out control requests and stores their results. It is safe for concurrent use.
type Manager struct {
	root   string
	proxy  *proxy.Proxy
	dialer *egress.Dialer
	spool  *audit.Spool
	llm    *llm.Broker
	broker *credential.Broker

	mu        sync.Mutex // guards what follows, and the files
	settings  string     // hash of the settings
	sandboxes map[string]Sandbox
}

// Open restores the state of the previous gateway. It skips and logs what it cannot read: that can only cut sandboxes
// off, never open anything. The spool has the attempts.
func Open(root string, p *proxy.Proxy, d *egress.Dialer, spool *audit.Spool, b *llm.Broker, c *credential.Broker,
	log *slog.Logger) (*Manager, error) {
	m := &Manager{root: root, proxy: p, dialer: d, spool: spool, llm: b, broker: c, sandboxes: make(map[string]Sandbox)}
	for _, dir := range []struct {
		path string
		mode fs.FileMode
	}{{m.path(Dir), 0o700}, {m.path(Dir, sandboxesDir), 0o700}, {m.path(servedDir), 0o711}} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return nil, fmt.Errorf("prepare the gateway's directory: %w", err)
		}
	}
	var s Settings
	err := readJSON(m.path(Dir, settingsFile), &s)
	if err == nil {
		err = m.Apply(s)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Error("the stored settings cannot be read: nothing is allowed until new settings arrive", "error", err)
	}
	files, err := filepath.Glob(m.path(Dir, sandboxesDir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes: %w", err)
	}
	for _, file := range files {
		var s Sandbox
		err := readJSON(file, &s)
		if err == nil {
			err = m.Add(s)
		}
		if err != nil {
			log.Error("the file of a sandbox cannot be read: the sandbox has no network until it is added again",
				"file", file, "error", err)
		}
	}
	return m, nil
}

func (m *Manager) path(parts ...string) string {
	return filepath.Join(append([]string{m.root}, parts...)...)
}

// Apply changes the settings and cuts connections that they forbid.
func (m *Manager) Apply(s Settings) error {
	compiled, err := policy.Compile(s.Egress)
	if err != nil {
		return err
	}
	var up *egress.Upstream
	if s.Upstream != nil {
		if up, err = egress.NewUpstream(s.Upstream.URL, []byte(s.Upstream.CA)); err != nil {
			return err
		}
	}
	roots, err := rootsWith(s.Egress.Authorities)
	if err != nil {
		return err
	}
	hash, err := s.Hash()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := writeJSON(m.path(Dir, settingsFile), s); err != nil {
		return fmt.Errorf("store the settings: %w", err)
	}
	m.dialer.SetUpstream(up)
	m.proxy.SetRoots(roots)
	m.proxy.SetPolicy(compiled)
	m.settings = hash
	return m.llm.SetPrivate(s.Egress.PrivateCIDRs)
}

// rootsWith returns the public authorities and those in text. It returns nil if text is empty.
func rootsWith(text string) (*x509.CertPool, error) {
	if text == "" {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the public authorities: %w", err)
	}
	for rest := []byte(text); len(bytes.TrimSpace(rest)) > 0; {
		block, more := pem.Decode(rest)
		if block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read the environment's authorities: %w", err)
		}
		roots.AddCert(cert)
		rest = more
	}
	return roots, nil
}

// Add admits a sandbox or changes its agent.
func (m *Manager) Add(s Sandbox) error {
	if err := s.validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if have, ok := m.sandboxes[s.ID]; ok && have == s {
		return nil
	}
	if err := writeJSON(m.sandboxFile(s.ID), s); err != nil {
		return fmt.Errorf("store sandbox %s: %w", s.ID, err)
	}
	if !m.proxy.Assign(s.served()) {
		if err := m.serve(s); err != nil {
			return fmt.Errorf("serve sandbox %s: %w", s.ID, err)
		}
	}
	if s.Trusts {
		if err := m.broker.Publish(m.path(SandboxDir(s.ID))); err != nil {
			return fmt.Errorf("serve sandbox %s: %w", s.ID, err)
		}
	}
	m.sandboxes[s.ID] = s
	return nil
}

func (m *Manager) sandboxFile(id string) string { return m.path(Dir, sandboxesDir, id+".json") }

// serve creates a sandbox's directory and socket. Every user may connect: a process that sees the directory
// belongs to the sandbox, whatever its user.
func (m *Manager) serve(s Sandbox) error {
	dir := m.path(SandboxDir(s.ID))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	socket := filepath.Join(dir, ProxySocket)
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // a previous gateway left it
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		return errors.Join(err, l.Close())
	}
	return m.proxy.Add(s.served(), l)
}

// Remove removes a sandbox and cuts its connections. An absent sandbox is success.
func (m *Manager) Remove(id string) error {
	if err := (Sandbox{ID: id}).validate(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proxy.Remove(id)
	delete(m.sandboxes, id)
	err := os.Remove(m.sandboxFile(id))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, os.RemoveAll(m.path(SandboxDir(id))), m.llm.Forget(id)); err != nil {
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	return nil
}

// Status returns the gateway's state.
func (m *Manager) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Status{
		Status: m.proxy.Status(), Settings: m.settings, IDs: slices.Sorted(maps.Keys(m.sandboxes)), LLM: m.llm.Status(),
		Credentials: m.broker.Hosts(),
	}
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func writeJSON(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return wholefile.Write(path, b, 0o600)
}
