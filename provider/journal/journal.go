// Package journal remembers the owners of pending creations until Terraform's state is known to hold the objects.
//
// Terraform stores the result of a Create after the Create has returned. If Terraform is killed before that, the object
// exists but no state knows its owner. So a Create writes its owner to the journal before it uses it. The next Create
// of the same object, in the same working directory and workspace, uses that owner again, and the service finds the
// existing object. An entry ends when a Read shows that the state holds the object, or when the object is deleted. So a
// Create never takes over an object that some state has held.
package journal

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/wholefile"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The kinds of objects.
const (
	Environment = "environment"
	Lease       = "lease"
)

// Object identifies what a Create makes.
type Object struct {
	Kind     string `json:"kind"`
	LedgerID string `json:"ledger_id"`
	ID       string `json:"id"`
}

// Entry is an object that a Create may have made and that no known state holds.
type Entry struct {
	Object
	Owner string `json:"owner"`
}

// Journal holds the entries of one working directory and workspace. It is safe for concurrent use. A nil Journal
// remembers nothing, so each Create has a fresh owner.
type Journal struct {
	dir string

	mu    sync.Mutex // guards begun and the files
	begun map[Object]bool
}

// In returns the journal in a directory, which need not exist yet.
func In(dir string) *Journal { return &Journal{dir: dir, begun: map[Object]bool{}} }

// Dir returns the directory for the journal of Terraform's current working directory and workspace. It is below
// Terraform's data directory, beside the configuration.
func Dir(getenv func(string) string) string {
	data := cmp.Or(getenv("TF_DATA_DIR"), ".terraform")
	workspace := getenv("TF_WORKSPACE")
	if workspace == "" {
		selected, err := os.ReadFile(filepath.Join(data, "environment"))
		if err == nil {
			workspace = strings.TrimSpace(string(selected))
		}
	}
	return filepath.Join(data, "sandbox", "creating", hash(cmp.Or(workspace, "default")))
}

// Begin returns the owner for a new object, and remembers it. If an earlier Create of the object is in no known state,
// Begin returns that Create's owner, and resumed is true. Otherwise the owner is fresh. A second Create of an object in
// one run belongs to another resource of the configuration: it gets a fresh owner, which Begin does not remember. After
// an error, the owner is also fresh: it is usable, but the next run will not find it.
func (j *Journal) Begin(o Object, fresh string) (owner string, resumed bool, err error) {
	if j == nil {
		return fresh, false, nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.begun[o] {
		return fresh, false, nil
	}
	j.begun[o] = true
	before, err := j.read(j.file(o))
	switch {
	case err == nil && before.Object == o && before.Owner != "":
		return before.Owner, true, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fresh, false, err
	}
	return fresh, false, j.write(Entry{Object: o, Owner: fresh})
}

// Held ends the entry of an object that a state holds with this owner, or that is gone.
func (j *Journal) Held(o Object, owner string) error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	entry, err := j.read(j.file(o))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case entry.Owner != owner:
		return nil
	}
	delete(j.begun, o)
	return j.remove(o)
}

// Lost returns the leases of an environment that a Create may have made and that no known state holds.
func (j *Journal) Lost(ledgerID, environmentID string) ([]Entry, error) {
	if j == nil {
		return nil, nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	files, err := os.ReadDir(j.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("list", j.dir, err)
	}
	var lost []Entry
	for _, f := range files {
		if filepath.Ext(f.Name()) != ".json" { // its process was killed as it wrote the file
			continue
		}
		entry, err := j.read(filepath.Join(j.dir, f.Name()))
		if err != nil {
			return nil, err
		}
		_, in, err := sandbox.ParseLeaseID(entry.ID)
		if entry.Kind == Lease && entry.LedgerID == ledgerID && err == nil && in == environmentID {
			lost = append(lost, entry)
		}
	}
	return lost, nil
}

func (j *Journal) file(o Object) string {
	return filepath.Join(j.dir, hash(o.Kind, o.LedgerID, o.ID)+".json")
}

func (j *Journal) read(file string) (Entry, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Entry{}, failed("read", file, err)
	}
	var entry Entry
	if err := json.Unmarshal(text, &entry); err != nil {
		return Entry{}, failed("read", file, err)
	}
	return entry, nil
}

// write stores an entry entirely or not at all, even if the process is killed.
func (j *Journal) write(e Entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings always encode
	}
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return failed("make", j.dir, err)
	}
	if err := wholefile.Write(j.file(e.Object), text, 0o600); err != nil {
		return failed("write", j.file(e.Object), err)
	}
	return nil
}

// remove removes an entry, and the directory with the last one.
func (j *Journal) remove(o Object) error {
	if err := os.Remove(j.file(o)); err != nil {
		return failed("remove", j.file(o), err)
	}
	_ = os.Remove(j.dir) // fails while it has entries
	return nil
}

func failed(do, what string, err error) error {
	return sandbox.Errorf(sandbox.Unavailable, "%s %s, where owners of what Terraform creates are kept: %w", do, what, err)
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:16])
}
