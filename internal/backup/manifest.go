package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// format is the version of the archives that this program writes and reads.
const format = 1

// Names of members.
const (
	ledgerMember   = "ledger.db"
	keysMember     = "secret-keys"
	dataMembers    = "data/"
	manifestMember = "manifest.json"
)

// maxManifest limits the size of a manifest, in bytes. Each object needs about 200.
const maxManifest = 256 << 20

// Manifest describes an archive.
type Manifest struct {
	// Format is the version of the archive's layout. Version is the version of the program that wrote it.
	Format   int       `json:"format"`
	Version  string    `json:"version"`
	LedgerID string    `json:"ledger_id"`
	Schema   int64     `json:"schema"`
	TakenAt  time.Time `json:"taken_at"`
	// WithoutKeys and WithoutSavedData say what the operator left out.
	WithoutKeys      bool `json:"without_keys,omitempty"`
	WithoutSavedData bool `json:"without_saved_data,omitempty"`
	// Missing lists the parts that were not found when the archive was written.
	Missing []string `json:"missing,omitempty"`
	Members []Member `json:"members"`
}

// Member is a file of an archive.
type Member struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// archiveWriter writes an archive.
type archiveWriter struct {
	tar *tar.Writer
	Manifest
}

// add writes a member of a known size.
func (w *archiveWriter) add(ctx context.Context, name string, bytes int64, content io.Reader) error {
	sum := sha256.New()
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: bytes, ModTime: w.TakenAt}
	if err := w.tar.WriteHeader(h); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "writing %s: %w", name, err)
	}
	n, err := io.Copy(w.tar, io.TeeReader(reader{ctx, content}, sum))
	if err == nil && n != bytes {
		err = fmt.Errorf("it has %d bytes instead of %d", n, bytes)
	}
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "writing %s: %w", name, err)
	}
	w.Members = append(w.Members, Member{Name: name, Bytes: bytes, SHA256: hex.EncodeToString(sum.Sum(nil))})
	return nil
}

// close writes the manifest and ends the archive.
func (w *archiveWriter) close(ctx context.Context) error {
	text, err := json.MarshalIndent(w.Manifest, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if err := w.add(ctx, manifestMember, int64(len(text)), strings.NewReader(string(text))); err != nil {
		return err
	}
	if err := w.tar.Close(); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "writing the archive: %w", err)
	}
	return nil
}

// archiveReader reads an archive from its start, as often as needed.
type archiveReader struct {
	file *os.File
	Manifest
	members map[string]Member
}

// verify reads the whole archive and compares it with its manifest. It puts the ledger and the keys into a directory.
// Errors: Invalid, if the archive is incomplete; Conflict, for the format of a newer program.
func (r *archiveReader) verify(ctx context.Context, dir string) error {
	found := map[string]Member{}
	var manifest []byte
	err := r.each(ctx, func(h *tar.Header, content io.Reader) error {
		if _, twice := found[h.Name]; twice || manifest != nil || h.Typeflag != tar.TypeReg {
			return r.invalid("it has an unexpected member %q", h.Name)
		}
		if h.Name == manifestMember {
			var err error
			manifest, err = readAll(content, h.Size, maxManifest)
			return err
		}
		sum := sha256.New()
		if err := r.extract(dir, h, content, sum); err != nil {
			return err
		}
		found[h.Name] = Member{Name: h.Name, Bytes: h.Size, SHA256: hex.EncodeToString(sum.Sum(nil))}
		return nil
	})
	switch {
	case err != nil:
		return err
	case manifest == nil:
		return r.invalid("it has no manifest: it was cut, or not finished")
	}
	if err := json.Unmarshal(manifest, &r.Manifest); err != nil {
		return r.invalid("its manifest: %w", err)
	}
	if r.Format > format {
		return sandbox.Errorf(sandbox.Conflict, "the backup %s has format %d, and this program reads format %d: use the "+
			"program that wrote it, version %s", r.file.Name(), r.Format, format, r.Version)
	}
	for _, m := range r.Members {
		if found[m.Name] != m {
			return r.invalid("its member %s is missing or damaged", m.Name)
		}
		if name := m.Name; name != ledgerMember && name != keysMember && !strings.HasPrefix(name, dataMembers) {
			return r.invalid("it has an unexpected member %q", name)
		}
	}
	if _, there := found[ledgerMember]; !there || len(found) != len(r.Members) {
		return r.invalid("its manifest does not name the ledger and every member")
	}
	r.members = found
	return nil
}

// extract reads a member into a checksum. The ledger and the keys also become files.
func (r *archiveReader) extract(dir string, h *tar.Header, content io.Reader, sum hash.Hash) (err error) {
	switch h.Name {
	case keysMember:
		if h.Size > seal.MaxFile {
			return r.invalid("its keys have %d bytes, and at most %d are allowed", h.Size, seal.MaxFile)
		}
	case ledgerMember:
	default:
		_, err := io.Copy(sum, content)
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, h.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "unpacking %s: %w", h.Name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(spooled{f}, io.TeeReader(content, sum))
	return err
}

// each calls fn for each member.
func (r *archiveReader) each(ctx context.Context, fn func(h *tar.Header, content io.Reader) error) error {
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "reading the backup: %w", err)
	}
	members := tar.NewReader(reader{ctx, r.file})
	for {
		h, err := members.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = fn(h, members)
		}
		if _, known := errors.AsType[*sandbox.Error](err); err != nil && !known && ctx.Err() == nil {
			err = r.invalid("it is damaged, or no backup: %w", err)
		}
		if err != nil {
			return err
		}
	}
}

func (r *archiveReader) invalid(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Invalid, "the backup "+r.file.Name()+": "+format, args...)
}

func readAll(content io.Reader, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("its manifest has %d bytes, and at most %d are allowed", size, limit)
	}
	return io.ReadAll(content)
}

// spooled distinguishes errors of this machine's disk from those of the archive.
type spooled struct{ io.Writer }

func (s spooled) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		err = sandbox.Errorf(sandbox.Unavailable, "unpacking to %s: %w (make room there, or set TMPDIR)", os.TempDir(), err)
	}
	return n, err
}

// reader stops when its context ends.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
