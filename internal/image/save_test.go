package image_test

import (
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestASavedImageIsTheEnginesOne(t *testing.T) {
	t.Parallel()
	ref := dockertest.Busybox(t)
	b := image.NewBuilder(func() (image.Engine, error) { return dockertest.Engine(t), nil })
	saved, err := b.Save(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	config, err := saved.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	found, err := b.Inspect(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || len(config.RootFS.DiffIDs) != len(found.Layers) ||
		config.RootFS.DiffIDs[0].String() != found.Layers[0] {
		t.Errorf("it has layers %v for %s, the engine %v", config.RootFS.DiffIDs, config.OS, found.Layers)
	}
	if err := saved.Close(); err != nil {
		t.Error(err)
	}
	if _, err := saved.Layers(); err == nil {
		if layers, _ := saved.Layers(); len(layers) > 0 {
			if _, err := layers[0].Uncompressed(); err == nil {
				t.Error("its file is still there")
			}
		}
	}
	if _, err := b.Save(t.Context(), "sandbox-test/none:1"); sandbox.CodeOf(err) != sandbox.NotFound ||
		!strings.Contains(err.Error(), "sandbox-test/none:1") {
		t.Errorf("a missing image: %v", err)
	}
}
