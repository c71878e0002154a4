package harness

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
)

// BuildPlayer compiles the example's player for an engine's architecture into its build context.
func BuildPlayer(ctx context.Context, example, arch string) error {
	source := filepath.Join(example, "player")
	build := Command(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", filepath.Join(source, "bin", "player"), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	_, err := Collect(build)
	return err
}

// AddGuest puts beside the built player what an image for Cloudflare needs: the guest, and the directories of its user.
func AddGuest(ctx context.Context, root, example, arch string) error {
	bin := filepath.Join(example, "player", "bin")
	for _, dir := range []string{"workspace", "data", "run/secrets"} {
		if err := os.MkdirAll(filepath.Join(bin, "root", dir), 0o755); err != nil {
			return err
		}
		// A directory that is empty is not sent to the engine.
		if err := os.WriteFile(filepath.Join(bin, "root", dir, ".keep"), nil, 0o600); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(bin, "guest")); err != nil {
		return err
	}
	_, err := Output(ctx, filepath.Join(root, Binary), "reconciler", "guest", "--arch", arch, filepath.Join(bin, "guest"))
	return err
}

// ImportPlayer makes an image that holds nothing but the example's player, which waits for input
// for as long as it is given none.
func ImportPlayer(ctx context.Context, example, image string) error {
	arch, err := Docker(ctx, "version", "--format", "{{.Server.Arch}}")
	if err != nil {
		return err
	}
	if err := BuildPlayer(ctx, example, strings.Join(arch, "")); err != nil {
		return err
	}
	player, err := os.ReadFile(filepath.Join(example, "player", "bin", "player"))
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	if err := archive.WriteHeader(&tar.Header{Name: "player", Mode: 0o755, Size: int64(len(player))}); err != nil {
		return err
	}
	if _, err := archive.Write(player); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	load := Command(ctx, "docker", "import", "-", image)
	load.Stdin = &layer
	_, err = Collect(load)
	return err
}
