// Package journal remembers who owns what a Create makes, until Terraform's state is known to hold it.
//
// Terraform stores what a Create returns after it has returned. When Terraform is killed before that, the object
// exists and no state knows its owner. So a Create writes the owner down before it uses it, and the next Create of
// the same object, in the same working directory and workspace, uses that owner again: the service then finds what
// was made. An entry ends when a Read shows that the state holds the object, or when the object is deleted. An
// object that some state has held is therefore never taken over.
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

// Object is what a Create makes.
type Object struct {
	Kind     string `json:"kind"`
	LedgerID string `json:"ledger_id"`
	ID       string `json:"id"`
}

// Entry is an object that a Create may have made, and that no state is known to hold.
type Entry struct {
	Object
	Owner string `json:"owner"`
}

// Journal holds the entries of one working directory and workspace. It is safe for concurrent use. A nil Journal
// remembers nothing: each Create has a fresh owner.
type Journal struct {
	dir string

	mu    sync.Mutex // guards begun and the files
	begun map[Object]bool
}

// In returns the journal that is kept in a directory, which need not exist yet.
func In(dir string) *Journal { return &Journal{dir: dir, begun: map[Object]bool{}} }

// Dir returns the directory for the journal of the working directory and workspace that Terraform runs in: below
// Terraform's data directory, which lies beside the configuration.
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

// Begin returns the owner to create an object with, and remembers it. It is the owner of a Create before that no
// state is known of, where there was one (resumed), and fresh otherwise. A second Create of an object in one run is
// another resource of the configuration: it gets a fresh owner, which is not remembered. With an error the owner is
// fresh too: it can be used, and will not be found again.
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

// Lost returns the leases of an environment that a Create may have made and no state is known to hold.
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
		if filepath.Ext(f.Name()) != ".json" { // one that was being written when its process was killed
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

// write stores an entry whole or not at all, also when the process is killed meanwhile.
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

// remove also removes the directory with its last entry.
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
