// Package private creates files with secrets, and refuses files that other users than their owner may read.
package private

import (
	"io/fs"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Check returns an error unless only the owner of a file has access to it. holds names the content, for example "keys".
// Errors: Invalid.
func Check(file, holds string, info fs.FileInfo) error {
	mode := info.Mode().Perm()
	if mode&0o077 == 0 {
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid,
		"%s holds %s and has mode %04o: only its owner may have access, run `chmod 600 %s`", file, holds, mode, file)
}
