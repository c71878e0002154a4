package gateway

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// embedded holds gateway-linux-amd64 and gateway-linux-arm64 once internal/guest/build.sh has built
// them; a clean clone has only its README there, so that it compiles.
//
//go:embed embedded
var embedded embed.FS

// Where the gateway and what it keeps are inside of its container, whose user it runs as.
const (
	Path    = "/gateway"
	Root    = "/run/egress"
	UserID  = 65532
	GroupID = 65532
)

// Binary returns the gateway for a Go architecture name, amd64 or arm64.
func Binary(arch string) ([]byte, error) {
	b, err := embedded.ReadFile("embedded/gateway-linux-" + arch)
	if errors.Is(err, fs.ErrNotExist) {
		if arch != "amd64" && arch != "arm64" {
			return nil, fmt.Errorf("there is no gateway for architecture %q: engines on amd64 and arm64 are supported", arch)
		}
		return nil, fmt.Errorf("gateway for linux/%s: built without the gateway: run make build", arch)
	}
	return b, err
}
