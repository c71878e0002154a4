package gitmirror

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/gofrs/flock"
	"github.com/skeema/knownhosts"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config configures a Store.
type Config struct {
	// Dir holds the mirrors. It is a cache: it may be deleted while no Store uses it.
	Dir string
	// Allow lists the allowed hosts, as parseHosts reads them. None is allowed by default.
	Allow []string
	// Host has the directories of this machine whose repositories may be read; nil means none.
	Host *host.Host
	// KnownHosts is a file with the keys of ssh servers, empty for none.
	KnownHosts string
	// Proxy is the URL of an HTTP proxy for https and http, empty for none. It resolves the hosts' names itself, so
	// addresses are not checked.
	Proxy string
	// CAFile is a file with CA certificates to trust in addition to the machine's; empty for none.
	CAFile string
	Limits Limits
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Store keeps mirrors of repositories. It is safe for concurrent use. Processes of one machine may share a directory:
// file locks show which mirrors are used, and which process changes one.
type Store struct {
	Config
	hosts  hosts
	routes routes

	mu sync.Mutex // guards what follows
	// used are the mirrors in use, by name.
	used map[string]*mirror
	key  []byte
}

// mirror is the bare repository of one URL, credential and depth.
type mirror struct {
	dir string
	// turn holds one element while a caller in this process changes the mirror. changing is locked while a caller in
	// any process does.
	turn     chan struct{}
	changing *flock.Flock
	// using is locked, shared, while this process uses the mirror.
	using *flock.Flock
	uses  int // guarded by Store.mu
}

// New returns a Store. Errors: Invalid if a host cannot be allowed, or a file cannot be used.
func New(c Config) (*Store, error) {
	allowed, err := parseHosts(c.Allow)
	if err != nil {
		return nil, err
	}
	if c.KnownHosts != "" {
		if _, err := knownhosts.NewDB(c.KnownHosts); err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "reading the keys of ssh servers: %w", err)
		}
	}
	by, err := c.routes()
	if err != nil {
		return nil, err
	}
	c.Limits = c.Limits.withDefaults()
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Store{Config: c, hosts: allowed, routes: by, used: make(map[string]*mirror)}, nil
}

// Check returns why the Store does not fetch from a URL, "" if it does. It connects to nothing. A nil Store fetches
// nothing.
func (s *Store) Check(text string) string {
	u, err := sandbox.ParseGitURL(text)
	if err != nil {
		return "it is not a URL"
	}
	if s == nil {
		s = &Store{}
	}
	if (sandbox.GitSource{URL: text}).IsLocal() {
		return s.checkLocal(text)
	}
	return s.hosts.check(u)
}

// Source is what to fetch.
type Source struct {
	URL, Ref string
	// Depth is the number of commits of history; 0 means all.
	Depth int
	// Username and Secret authenticate. An empty Secret sends no credential.
	Username string
	Secret   sandbox.Secret
	// KnownHosts are lines with the keys of ssh servers, in addition to those of the Store.
	KnownHosts string
	// Submodules fetches submodules too.
	Submodules bool

	// level is the nesting level of a submodule. trusted is the origin that the credential is for, empty for the
	// source's own. withheld: this source has another origin and does not get the credential.
	level    int
	trusted  string
	withheld bool
}

// secret returns the credential that a source's server gets.
func (s Source) secret() sandbox.Secret {
	if s.withheld {
		return ""
	}
	return s.Secret
}

// nameOf names the mirror of a source. The name reveals nothing about the credential.
func (s *Store) nameOf(src Source) (string, error) {
	key, err := s.ownKey()
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%d %q %q %q", src.Depth, src.URL, src.Username, string(src.secret()))
	if src.KnownHosts != "" {
		fmt.Fprintf(mac, " %q", src.KnownHosts)
	}
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// ownKey returns the random key of the directory, and creates it if it is missing.
func (s *Store) ownKey() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil {
		return s.key, nil
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, cacheError(err)
	}
	file := filepath.Join(s.Dir, "key")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(file); err != nil {
			return nil, cacheError(err)
		}
	}
	key, err := os.ReadFile(file)
	if err != nil {
		return nil, cacheError(err)
	}
	s.key = key
	return key, nil
}

// makeKey creates a key unless another process is faster. No reader sees a partial key.
func makeKey(file string) error {
	f, err := os.CreateTemp(filepath.Dir(file), "key-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // the key has another name
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	_, err = f.Write(key)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Link(f.Name(), file)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// cacheError is an error of this machine's disk.
func cacheError(err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "the cache of Git repositories: %w", err)
}

// use returns a mirror, which is not removed before leave.
func (s *Store) use(src Source) (*mirror, error) {
	name, err := s.nameOf(src)
	if err != nil {
		return nil, err
	}
	return s.take(name, "objects/pack", "tips", "exports")
}

// take uses the entry of the cache with a name, and creates its directories.
func (s *Store) take(name string, directories ...string) (*mirror, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.used[name]
	if m == nil {
		dir := filepath.Join(s.Dir, name)
		m = &mirror{dir: dir, turn: make(chan struct{}, 1), changing: lockOf(dir + ".lock"), using: lockOf(dir + ".use")}
	}
	if m.uses == 0 {
		if err := m.using.RLock(); err != nil { // waits while another process removes it
			return nil, cacheError(err)
		}
	}
	s.used[name] = m
	m.uses++
	now := s.Now()
	var err error
	for _, dir := range directories {
		err = errors.Join(err, os.MkdirAll(filepath.Join(m.dir, dir), 0o700))
	}
	if err = errors.Join(err, os.Chtimes(m.dir, now, now)); err != nil {
		s.left(m)
		return nil, cacheError(err)
	}
	return m, nil
}

// lockOf returns a lock for all processes that share the directory. Its file stays, because removing it would split the
// lock.
func lockOf(file string) *flock.Flock { return flock.New(file, flock.SetPermissions(0o600)) }

// leave ends a use.
func (s *Store) leave(m *mirror) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left(m)
}

// left ends a use, with mu held.
func (s *Store) left(m *mirror) {
	if m.uses--; m.uses == 0 {
		delete(s.used, filepath.Base(m.dir))
		_ = m.using.Close() // the file is only locked
	}
}

// lockPause is the pause between two attempts to get a lock that another process holds.
const lockPause = 100 * time.Millisecond

// lock waits for the turn to change a mirror.
func (m *mirror) lock(ctx context.Context) error {
	waited := func(err error) error {
		return sandbox.Errorf(sandbox.Unavailable, "waiting for another fetch of the repository: %w", err)
	}
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return waited(ctx.Err())
	}
	_, err := m.changing.TryLockContext(ctx, lockPause)
	if err == nil {
		return nil
	}
	<-m.turn
	if ctx.Err() != nil {
		return waited(err)
	}
	return cacheError(err)
}

func (m *mirror) unlock() {
	_ = m.changing.Close() // the file is only locked
	<-m.turn
}

// open returns the objects of a mirror. The caller closes them.
func (m *mirror) open() *filesystem.Storage {
	const cached = 16 * cache.MiByte // many leases may start at the same time
	return filesystem.NewStorageWithOptions(osfs.New(m.dir, osfs.WithBoundOS()), cache.NewObjectLRU(cached),
		filesystem.Options{KeepDescriptors: true, ExclusiveAccess: true})
}

// tips returns the hashes whose complete history, to the mirror's depth, is in the mirror.
func (m *mirror) tips() []plumbing.Hash {
	entries, err := os.ReadDir(filepath.Join(m.dir, "tips"))
	if err != nil {
		return nil
	}
	var all []plumbing.Hash
	for _, e := range entries {
		if plumbing.IsHash(e.Name()) {
			all = append(all, plumbing.NewHash(e.Name()))
		}
	}
	return all
}

// tip returns the name of the pack that has a complete tip and nothing else, "" if none does, and whether the mirror
// has the tip.
func (m *mirror) tip(tip plumbing.Hash) (pack string, ok bool) {
	text, err := os.ReadFile(filepath.Join(m.dir, "tips", tip.String()))
	return string(text), err == nil
}

// addTip records a complete tip, and its own pack.
func (m *mirror) addTip(tip plumbing.Hash, pack string) error {
	if err := os.WriteFile(filepath.Join(m.dir, "tips", tip.String()), []byte(pack), 0o600); err != nil {
		return cacheError(err)
	}
	return nil
}

// Prune removes mirrors that are not in use: those unused for Limits.Unused, and the least recently used until all are
// within Limits.MirrorBytes. Errors: Unavailable.
func (s *Store) Prune() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cacheError(err)
	}
	type candidate struct {
		dir  string
		at   time.Time
		size int64
	}
	var (
		all   []candidate
		total int64
		errs  []error
	)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := filepath.Join(s.Dir, e.Name())
		info, err := e.Info()
		if err != nil {
			continue // it has just gone
		}
		size := sizeOf(dir)
		total += size
		if s.used[e.Name()] == nil {
			all = append(all, candidate{dir, info.ModTime(), size})
		}
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Or(a.at.Compare(b.at), strings.Compare(a.dir, b.dir)) })
	oldest := s.Now().Add(-s.Limits.Unused)
	for _, c := range all {
		if c.at.After(oldest) && total <= s.Limits.MirrorBytes {
			break
		}
		removed, err := removeUnused(c.dir)
		if errs = append(errs, err); removed {
			total -= c.size
		}
	}
	if err := errors.Join(errs...); err != nil {
		return cacheError(err)
	}
	return nil
}

// removeUnused removes a mirror unless another process uses it.
func removeUnused(dir string) (bool, error) {
	using := lockOf(dir + ".use")
	defer func() { _ = using.Close() }() // the file is only locked
	if locked, err := using.TryLock(); err != nil || !locked {
		return false, err
	}
	return true, os.RemoveAll(dir)
}

func sizeOf(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it has just gone
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}
