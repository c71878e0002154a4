package cloudflare

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

//go:generate ./worker/build.sh

// embedded holds worker.js once it is built; a clean clone has only its README there, so that it compiles.
//
//go:embed embedded
var embedded embed.FS

// Script returns the Worker: one ES module, as it is uploaded.
func Script() ([]byte, error) {
	b, err := embedded.ReadFile("embedded/worker.js")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the Cloudflare Worker: built without it: run make worker, then make build")
	}
	return b, err
}
