package cloudflaretest

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi/miniflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// Account is a Cloudflare account on this machine: what is deployed to it runs.
type Account struct {
	// URL is the API's, as deploy.Config has it.
	URL, ID string
	Token   sandbox.Secret
	API     *localapi.Server
}

// StartAccount runs an account until the test ends. It skips and fails as Start does.
func StartAccount(t testing.TB) *Account {
	t.Helper()
	Need(t)
	dockertest.NeedGateway(t) // workerd asks for it
	runtime, err := miniflare.Start(miniflare.Config{
		Worker: workerDir(), State: t.TempDir(), Engine: engine(t), Sidecar: sidecar(t), Image: imageID,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := runtime.Close(); err != nil {
			t.Errorf("the program that runs Workers ended with %v", err)
		}
	})
	a := &Account{ID: "0123456789abcdef0123456789abcdef", Token: sandbox.Secret(sandbox.RandomIDs(40))}
	a.API = localapi.New(localapi.Config{Token: string(a.Token), Runtime: runtime})
	server := httptest.NewServer(a.API)
	t.Cleanup(server.Close)
	a.URL = server.URL + "/client/v4"
	return a
}

// Reference returns how a deployment names an image of the engine's: by the digest that is its id there.
func (a *Account) Reference(t testing.TB, image string) string {
	t.Helper()
	found, err := dockertest.Engine(t).ImageInspect(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	return "registry.cloudflare.com/" + a.ID + "/test@" + found.ID
}

// imageID is the other way of Reference.
func imageID(_ context.Context, reference string) (string, error) {
	_, id, pinned := strings.Cut(reference, "@")
	if !pinned {
		return "", fmt.Errorf("image %s has no digest", reference)
	}
	return id, nil
}
