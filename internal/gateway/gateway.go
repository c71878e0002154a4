package gateway

import (
	"embed"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
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
	return guest.Program(embedded, "gateway", arch)
}
