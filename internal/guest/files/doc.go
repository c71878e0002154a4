// Package files works on the files of a sandbox: it transfers archives, reads and changes single paths,
// replaces secrets, and saves a directory.
//
// Sandbox code owns the files and may change them at any time. So:
//
//   - A Worker touches files only with the sandbox's file-system identity, on threads that have no other.
//   - Paths are resolved below /workspace, /data or the secrets directory, component by component. No link leads out.
//   - No open can block: directories are opened as directories, other files non-blocking.
//   - A walk keeps a few bytes for each level, however large a directory is.
//   - The end of a context ends each operation between two files or two buffers.
package files
