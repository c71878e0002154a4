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
	build := Command(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=",
		"-o", filepath.Join(source, "bin", "player"), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	_, err := Collect(build)
	return err
}

// ImportPlayer creates an image that contains only the example's player, which waits for input.
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
