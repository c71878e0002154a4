package containerimage

import (
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// engine is a Docker engine with an id and no images.
type engine struct {
	image.Engine
	id string
}

func (e engine) Info(context.Context) (dockerapi.Info, error) { return dockerapi.Info{ID: e.id}, nil }

// Another engine does not have the image. That does not mean that the image is gone.
func TestAnotherEngineIsAnError(t *testing.T) {
	t.Parallel()
	r := Resource{provider: &configured.Provider{
		Images: image.NewBuilder(func() (image.Engine, error) { return engine{id: "new"}, nil }),
	}}
	m := Model{Name: types.StringValue("player"), Instance: types.StringValue("old")}
	_, err := r.instance(t.Context(), &m)
	if sandbox.ReasonOf(err) != sandbox.ReasonOtherInstance ||
		!strings.Contains(err.Error(), "engine old, but engine new answers") {
		t.Errorf("got %v", err)
	}
	m.Instance = types.StringNull() // at import
	if id, err := r.instance(t.Context(), &m); id != "new" || err != nil {
		t.Errorf("got %s, %v", id, err)
	}
}
