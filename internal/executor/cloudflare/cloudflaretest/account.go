package cloudflaretest

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localaccount"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
)

// Account is a Cloudflare account on this machine: what is deployed to it runs.
type Account struct {
	*localaccount.Account
	ID string
}

// StartAccount runs an account until the test ends. It skips and fails as Start does.
func StartAccount(t testing.TB, change ...func(*localaccount.Config)) *Account {
	t.Helper()
	Need(t)
	cfg := localaccount.Config{Worker: workerDir(), State: t.TempDir()}
	for _, c := range change {
		c(&cfg)
	}
	a, err := localaccount.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Account{Account: a, ID: localaccount.ID}
}

// ImageID returns how an environment names an image that nothing but the engine has.
func ImageID(t testing.TB, image string) string {
	t.Helper()
	found, err := dockertest.Engine(t).ImageInspect(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	return found.ID
}
