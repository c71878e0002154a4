package access

import (
	"io/fs"
	"os"
)

// copyOwner does nothing: a new file inherits its access rights from the directory.
func copyOwner(*os.File, fs.FileInfo) error { return nil }
