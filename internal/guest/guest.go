// Package guest holds the helper that every Docker sandbox runs: as process 1, and once more for
// each command and file transfer. It is a static program (cmd/guest), so it works in an image
// built FROM scratch.
package guest

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// build.sh is the one place that knows how the helper is built:
//
//	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -ldflags "-s -w -buildid=" -o embedded/guest-linux-$arch ./cmd/guest
//
//go:generate ./build.sh

// embedded holds guest-linux-amd64 and guest-linux-arm64 once they are built; a clean clone has
// only its README there, so that it compiles.
//
//go:embed embedded
var embedded embed.FS

// Where the helper is inside of a sandbox, on a read-only mount.
const (
	Dir  = "/.sandbox"
	Path = Dir + "/guest"
	// SecretsDir is where it puts secrets, a directory in memory.
	SecretsDir = "/run/secrets"
	// LeaseDir is where process 1 of a sandbox of a warm pool keeps wire.LeaseFile. No code of the sandbox can enter it.
	LeaseDir = "/.sandbox-lease"
	// EgressDir is where a sandbox whose network is restricted finds the gateway's socket, on a
	// read-only mount, and ProxyAddress where its programs find the proxy.
	EgressDir    = "/.sandbox-egress"
	ProxyAddress = "127.0.0.1:3128"
)

// KeeperID is the user and group of process 1 and its broker, once process 1 has handed the directories over. Code of a
// sandbox never runs as this user.
const KeeperID = 65533

// Where process 1 finds the way to the reconciler, on a read-only mount: a socket, and a file that ends the sandbox once it
// is there.
const (
	ChannelDir    = "/.sandbox-channel"
	ChannelSocket = ChannelDir + "/channel.sock"
	EndFile       = "end"
)

// Port is where a sandbox without ChannelDir takes connections, and PortKey the variable with their key, in hexadecimal.
const (
	Port    = 39080
	PortKey = "SANDBOX_PORT_KEY"
)

// Binary returns the helper for a Go architecture name, amd64 or arm64.
func Binary(arch string) ([]byte, error) {
	return Program(embedded, "guest", arch)
}

// Program returns a program that build.sh has built, for a Go architecture name, from what was embedded.
func Program(embedded embed.FS, name, arch string) ([]byte, error) {
	b, err := embedded.ReadFile("embedded/" + name + "-linux-" + arch)
	if errors.Is(err, fs.ErrNotExist) {
		if arch != "amd64" && arch != "arm64" {
			return nil, fmt.Errorf("there is no %s for architecture %q: engines on amd64 and arm64 are supported", name, arch)
		}
		return nil, fmt.Errorf("%s for linux/%s: built without the %s: run make build", name, arch, name)
	}
	return b, err
}
