package localaccount

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/gofrs/flock"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
)

// SidecarImage is the repository of Sidecar's images.
const SidecarImage = "sandbox-cloudflare-local/sidecar"

//go:embed sidecar/*.go
var sidecarSource embed.FS

// Sidecar returns the image that workerd runs beside each container. If the engine does not have the image, Sidecar
// builds it with Go. It stays on the engine.
func Sidecar(ctx context.Context, engine *dockerapi.Client) (string, error) {
	source, err := sources(sidecarSource, "sidecar")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Append(nil, source)) // maps are written in the order of their keys
	ref := SidecarImage + ":" + hex.EncodeToString(sum[:6])
	lock := flock.New(filepath.Join(os.TempDir(), fmt.Sprintf("sandbox-cloudflare-sidecar-%d.lock", os.Getuid())))
	if err := lock.Lock(); err != nil { // so that it is made once
		return "", fmt.Errorf("make image %s: %w", ref, err)
	}
	defer func() { _ = lock.Close() }() // closing a lock's file ends the lock
	_, err = engine.ImageInspect(ctx, ref)
	if cerrdefs.IsNotFound(err) {
		err = makeSidecar(ctx, engine, ref, source)
	}
	if err != nil {
		return "", fmt.Errorf("make image %s: %w", ref, err)
	}
	return ref, nil
}

// sources reads the files of a program.
func sources(all embed.FS, dir string) (map[string]string, error) {
	entries, err := all.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := make(map[string]string)
	for _, e := range entries {
		content, err := all.ReadFile(dir + "/" + e.Name())
		if err != nil {
			return nil, err
		}
		files[e.Name()] = string(content)
	}
	return files, nil
}

func makeSidecar(ctx context.Context, engine *dockerapi.Client, ref string, source map[string]string) error {
	version, err := engine.ServerVersion(ctx)
	if err != nil {
		return err
	}
	program, err := compile(ctx, source, version.Arch)
	if err != nil {
		return err
	}
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	if err := archive.WriteHeader(&tar.Header{Name: "sidecar", Mode: 0o755, Size: int64(len(program))}); err != nil {
		return err
	}
	if _, err := archive.Write(program); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	answer, err := engine.ImageImport(ctx, dockerapi.ImageImportSource{Source: &layer, SourceName: "-"}, ref,
		dockerapi.ImageImportOptions{Changes: []string{`ENTRYPOINT ["/sidecar"]`}})
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }() // it is read
	return dockerapi.Finish(answer)
}

// compile builds a program for an engine's containers from its files, by name.
func compile(ctx context.Context, source map[string]string, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "compile")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // best effort, below the temporary directory
	arguments := []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", "program"}
	for name, content := range source {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, err
		}
		arguments = append(arguments, name)
	}
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile a program for containers: %w\n%s", err, out)
	}
	return os.ReadFile(filepath.Join(dir, "program"))
}
