package sandbox

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"time"
)

// MaxFileBytes is the largest file that can be read or written as a single file. Tar streams have no such limit.
const MaxFileBytes = 1 << 30

// DefaultFileMode are the default permissions of a written file.
const DefaultFileMode fs.FileMode = 0o644

// FileType is the type of a file.
type FileType string

// The file types.
const (
	FileRegular   FileType = "file"
	FileDirectory FileType = "directory"
	FileSymlink   FileType = "symlink"
	FileOther     FileType = "other" // a pipe, socket or device
)

// FileInfo describes a file. A link is described, not followed. Names and targets are bytes from Linux, not always
// UTF-8.
type FileInfo struct {
	Name string // the last element of the path
	Type FileType
	// Size is in bytes, for regular files only.
	Size       int64
	Mode       fs.FileMode // permissions
	ModifiedAt time.Time
	Target     string // for symbolic links
}

// FileQuery lists a directory.
type FileQuery struct {
	Path string
	// After is the last name of the previous page.
	After string
	// Limit is the page size, 1 to MaxPage; zero means MaxPage.
	Limit int
}

// Normalize fills in defaults and checks the query. Errors: Invalid.
func (q FileQuery) Normalize() (FileQuery, error) {
	orDefault(&q.Limit, MaxPage)
	clean, f := cleanField(q.Path)
	q.Path = clean
	if q.Limit < 1 || q.Limit > MaxPage {
		f = append(f, Field{"limit", fmt.Sprintf("must be between 1 and %d", MaxPage)})
	}
	return q, InvalidFields("files", f)
}

// FileRead asks for the content of one file.
type FileRead struct {
	Path string
	// MaxBytes refuses a larger file (Invalid). Zero means MaxFileBytes, which is also the maximum.
	MaxBytes int64
}

// Normalize fills in defaults and checks the request. Errors: Invalid.
func (r FileRead) Normalize() (FileRead, error) {
	clean, f := cleanField(r.Path)
	r.Path = clean
	r.MaxBytes, f = sizeLimit(f, r.MaxBytes)
	return r, InvalidFields("file", f)
}

// FileWrite writes one file.
type FileWrite struct {
	Path string
	// Mode are its permissions. Zero means DefaultFileMode.
	Mode fs.FileMode
	// MaxBytes refuses larger content (Invalid). Zero means MaxFileBytes, which is also the maximum.
	MaxBytes int64
}

// Normalize fills in defaults and checks the request. Errors: Invalid.
func (w FileWrite) Normalize() (FileWrite, error) {
	orDefault(&w.Mode, DefaultFileMode)
	clean, f := cleanField(w.Path)
	w.Path = clean
	if isRoot(clean) {
		f = append(f, Field{"path", "must name a file"})
	}
	if w.Mode&^fs.ModePerm != 0 {
		f = append(f, Field{"mode", "must be between 0001 and 0777"})
	}
	w.MaxBytes, f = sizeLimit(f, w.MaxBytes)
	return w, InvalidFields("file", f)
}

// FileRemoval removes a file or directory.
type FileRemoval struct {
	Path string
	// Recursive removes a directory with its content.
	Recursive bool
}

// Normalize checks the request. Errors: Invalid.
func (r FileRemoval) Normalize() (FileRemoval, error) {
	clean, f := cleanField(r.Path)
	r.Path = clean
	if isRoot(clean) {
		f = append(f, Field{"path", clean + " cannot be removed: remove its content"})
	}
	return r, InvalidFields("file", f)
}

// FileContent is the content of one file. The caller must close it. An incomplete read ends with an error other
// than io.EOF.
type FileContent struct {
	io.ReadCloser
	Size int64 // bytes
}

func cleanField(p string) (clean string, problems []Field) {
	clean, err := CleanPath(p)
	if err != nil {
		problems = []Field{{"path", err.Error()}}
	}
	return clean, problems
}

func isRoot(clean string) bool { return path.Dir(clean) == "/" }

func sizeLimit(f []Field, n int64) (int64, []Field) {
	orDefault(&n, MaxFileBytes)
	if n < 0 || n > MaxFileBytes {
		f = append(f,
			Field{"max_bytes", fmt.Sprintf("must be between 0 and %d; transfer larger files as a tar stream", MaxFileBytes)})
	}
	return n, f
}
