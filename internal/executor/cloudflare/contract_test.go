package cloudflare_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

func newExecutor(t *testing.T, d cloudflare.Deployer) *cloudflare.Executor {
	t.Helper()
	x, err := cloudflare.New(cloudflare.Config{Deployer: d, MasterKey: "the key of keys", Poll: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// lite is the smallest size.
func lite(t *testing.T) sandbox.Resources {
	t.Helper()
	r, ok := sandbox.ResourcesOf("lite")
	if !ok {
		t.Fatal("there is no size lite")
	}
	return r
}

func TestContract(t *testing.T) {
	cloudflaretest.Need(t)
	d := cloudflaretest.NewDeployer(t)
	executortest.Run(t, executortest.Config{
		New:   func(t *testing.T) sandbox.Executor { return newExecutor(t, d) },
		Image: cloudflaretest.Reference(cloudflaretest.Busybox(t)), MissingImage: cloudflaretest.Reference("sandbox-test/no-such-image:1"),
		ImageUnseen: true, StandIn: true, Resources: lite(t),
		StopBehindBack: func(t *testing.T, h sandbox.Handle) {
			t.Helper()
			r, err := sandbox.ExecRequest{Command: []string{"hostname"}}.Normalize()
			if err != nil {
				t.Fatal(err)
			}
			res, err := newExecutor(t, d).Exec(t.Context(), h, r)
			if err != nil {
				t.Fatal(err)
			}
			cloudflaretest.Crash(t, strings.TrimSpace(string(res.Stdout)))
		},
	})
}
