// Package guest holds the helper program of every Docker sandbox. It is process 1, and also runs once for
// each command and file transfer. It is a static program (cmd/guest), so it works in an image built FROM
// scratch.
package guest

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// Only build.sh knows how to build the helper:
//
//	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -ldflags "-s -w -buildid=" \
//		-o embedded/guest-linux-$arch ./cmd/guest
//
//go:generate ./build.sh

// embedded holds guest-linux-amd64 and guest-linux-arm64 after a build. A clean clone has only a README
// there, so that it compiles.
//
//go:embed embedded
var embedded embed.FS

// Paths of the helper in a sandbox, on a read-only mount.
const (
	Dir  = "/.sandbox"
	Path = Dir + "/guest"
	// SecretsDir is the directory for secrets, in memory.
	SecretsDir = "/run/secrets"
	// LeaseDir is where process 1 of a pool's sandbox stores wire.LeaseFile. Sandbox code cannot enter it.
	LeaseDir = "/.sandbox-lease"
	// EgressDir contains the gateway's socket in a sandbox with a restricted network, on a read-only mount.
	// ProxyAddress is the address of the proxy for its programs.
	EgressDir    = "/.sandbox-egress"
	ProxyAddress = "127.0.0.1:3128"
)

// LastWords is the line of a companion's log after which its process 1 repeats the end of its program's output.
const LastWords = "keeper: the program has ended; the end of its output:\n"

// KeeperID is the user and group of process 1 and its broker, after process 1 has handed over the
// directories. Sandbox code never runs as this user.
const KeeperID = 65533

// Process 1's channel to the reconciler, on a read-only mount: a socket, and a file that ends the sandbox as
// soon as it exists.
const (
	ChannelDir    = "/.sandbox-channel"
	ChannelSocket = ChannelDir + "/channel.sock"
	EndFile       = "end"
)

// Port is where a sandbox without ChannelDir accepts connections. PortKey is the variable with their key, in
// hexadecimal.
const (
	Port    = 39080
	PortKey = "SANDBOX_PORT_KEY"
)

// Binary returns the helper for a Go architecture name, amd64 or arm64.
func Binary(arch string) ([]byte, error) {
	return Program(embedded, "guest", arch)
}

// Program returns an embedded program built by build.sh, for a Go architecture name.
func Program(embedded embed.FS, name, arch string) ([]byte, error) {
	b, err := embedded.ReadFile("embedded/" + name + "-linux-" + arch)
	if errors.Is(err, fs.ErrNotExist) {
		if arch != "amd64" && arch != "arm64" {
			return nil, fmt.Errorf("%s does not support architecture %q: use an engine on amd64 or arm64", name, arch)
		}
		return nil, fmt.Errorf("%s for linux/%s: this program was built without the %s: run make build", name, arch, name)
	}
	return b, err
}
