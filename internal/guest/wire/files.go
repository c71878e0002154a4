package wire

import "time"

// FileOp is the operation of a FileRequest.
type FileOp string

// The file operations.
const (
	FileStat   FileOp = "stat"   // writes one FileInfo to standard output
	FileList   FileOp = "list"   // writes a FileInfo for each name, in byte order
	FileWrite  FileOp = "write"  // writes what a Writer sent to standard input
	FileRemove FileOp = "remove" // answers only with the result
	FileUsage  FileOp = "usage"  // writes one DiskUsage, of a directory with all its content
)

// FileRequest asks for an operation on one path. Paths and names are bytes and need not be UTF-8, while
// engine arguments are text.
type FileRequest struct {
	Op        FileOp `json:"op"`
	Path      []byte `json:"path"`
	After     []byte `json:"after,omitempty"`
	Limit     int    `json:"limit,omitempty"`
	Mode      uint32 `json:"mode,omitempty"`
	Recursive bool   `json:"recursive,omitempty"`
}

// FileInfo describes a file, as a JSON value.
type FileInfo struct {
	Name     []byte    `json:"name"`
	Type     string    `json:"type"` // file, directory, symlink or other
	Size     int64     `json:"size,omitempty"`
	Mode     uint32    `json:"mode"`
	Modified time.Time `json:"modified"`
	Target   []byte    `json:"target,omitempty"`
}

// DiskUsage is the disk use of a directory, as a JSON value.
type DiskUsage struct {
	Bytes    int64 `json:"bytes"`
	Files    int64 `json:"files"`
	Complete bool  `json:"complete"`
}

// Usage is the resource usage of a sandbox, as a JSON value.
type Usage struct {
	CPUTime     time.Duration `json:"cpu_ns"` // since its start
	MemoryBytes int64         `json:"memory_bytes"`
	PIDs        int64         `json:"pids"`
}
