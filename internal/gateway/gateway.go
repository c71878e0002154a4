package gateway

import (
	"embed"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// embedded holds gateway-linux-amd64 and gateway-linux-arm64 after internal/guest/build.sh has built them. A
// clean clone has only a README there, so that it compiles.
//
//go:embed embedded
var embedded embed.FS

// Paths of the gateway and its data in its container, and its user.
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
