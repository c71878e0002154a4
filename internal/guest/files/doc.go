// Package files works on the files of a sandbox: it moves archives in and out, reads and changes single paths, replaces
// secrets, and saves a directory.
//
// Sandboxed code owns the files, and may change them at any moment. So:
//
//   - A Worker touches files with the sandbox's file-system identity only, on threads that have no other.
//   - Paths are resolved below /workspace, /data or the directory of secrets, name by name. No link leads out.
//   - No file is opened that may block: directories are opened as such, the rest without waiting.
//   - A walk keeps a few bytes for each level, however wide a directory is.
//   - The end of a context ends each operation, between two files or two buffers.
package files
