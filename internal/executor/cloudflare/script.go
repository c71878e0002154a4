package cloudflare

import (
	"embed"
	"errors"
	"io/fs"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

//go:generate ./worker/build.sh

// embedded holds worker.js once it is built; a clean clone has only its README there, so that it compiles.
//
//go:embed embedded
var embedded embed.FS

// Script returns the Worker: one ES module, as it is uploaded. Errors: Invalid when this program was built without it.
func Script() ([]byte, error) { return scriptIn(embedded) }

func scriptIn(files fs.FS) ([]byte, error) {
	b, err := fs.ReadFile(files, "embedded/worker.js")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.InvalidFields("environment", []sandbox.Field{{Name: "backend",
			Problem: "must be docker: this program was built without the Cloudflare Worker; build it with npm at " +
				"hand (make build)"}})
	}
	return b, err
}
