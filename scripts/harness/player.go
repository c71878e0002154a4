package harness

import (
	"context"
	"os"
	"path/filepath"
)

// BuildPlayer compiles the example's player for an engine's architecture into its build context.
func BuildPlayer(ctx context.Context, example, arch string) error {
	source := filepath.Join(example, "player")
	build := Command(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", filepath.Join(source, "bin", "player"), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	_, err := Collect(build)
	return err
}
