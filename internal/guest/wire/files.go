package wire

import "time"

// FileOp is what a FileRequest asks for.
type FileOp string

// The file operations.
const (
	FileStat   FileOp = "stat"   // one FileInfo on standard output
	FileList   FileOp = "list"   // a FileInfo for each name, in the order of bytes
	FileWrite  FileOp = "write"  // of what a Writer writes to standard input
	FileRemove FileOp = "remove" // answers with nothing but the result
	FileUsage  FileOp = "usage"  // one DiskUsage, of a directory and all below it
)

// FileRequest asks for work on one path. Paths and names are bytes, which need not be UTF-8, while
// an engine takes arguments as text.
type FileRequest struct {
	Op        FileOp `json:"op"`
	Path      []byte `json:"path"`
	After     []byte `json:"after,omitempty"`
	Limit     int    `json:"limit,omitempty"`
	Mode      uint32 `json:"mode,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
}

// FileInfo describes what lies under a path, as a JSON value.
type FileInfo struct {
	Name     []byte    `json:"name"`
	Type     string    `json:"type"` // file, directory, symlink or other
	Size     int64     `json:"size,omitempty"`
	Mode     uint32    `json:"mode"`
	Modified time.Time `json:"modified"`
	Target   []byte    `json:"target,omitempty"`
}

// DiskUsage is what lies below a directory, as a JSON value.
type DiskUsage struct {
	Bytes    int64 `json:"bytes"`
	Files    int64 `json:"files"`
	Complete bool  `json:"complete"`
}

// Usage is what a sandbox uses, as a JSON value.
type Usage struct {
	CPUTime     time.Duration `json:"cpu_ns"` // since it started
	MemoryBytes int64         `json:"memory_bytes"`
	PIDs        int64         `json:"pids"`
}
