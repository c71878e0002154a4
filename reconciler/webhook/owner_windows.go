package webhook

import (
	"io/fs"
	"os"
)

// likewise has nothing to do: who makes a file in a directory has what the directory gives.
func likewise(*os.File, fs.FileInfo) error { return nil }
