package cloudflare_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
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

// TestContract: the attacks run on process 1, which is the same program on Docker.
func TestContract(t *testing.T) {
	cloudflaretest.Need(t)
	cfg := contract(t, cloudflaretest.NewDeployer(t))
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		cfg.Without["Attacks"] = "takes minutes: set SANDBOX_TEST_LONG=1, or run make test-long"
	}
	executortest.Run(t, cfg)
}

// TestContractBehindABufferingProxy: nothing needs requests and answers to flow at the same time.
func TestContractBehindABufferingProxy(t *testing.T) {
	cloudflaretest.Need(t)
	nginx := cloudflaretest.NeedNginx(t)
	d := cloudflaretest.NewDeployer(t)
	d.Front = func(url string) (string, func()) { return cloudflaretest.Nginx(t, nginx, url) }
	executortest.Run(t, contract(t, d))
}

// unlimited is why attacks that exhaust a resource do not run: they would exhaust this machine.
const unlimited = "the local runtime gives its containers no limits, and they share this machine's kernel"

func contract(t *testing.T, d *cloudflaretest.Deployer) executortest.Config {
	return executortest.Config{
		Without: map[string]string{
			"Attacks/what a sandbox uses up is its own":                           unlimited,
			"Attacks/what another user of a sandbox uses up is the sandbox's own": unlimited,
			"Attacks/a bomb does not put its end off":                             unlimited,
			"Attacks/a bomb does not put the end of its sandbox off":              unlimited,
		},
		New:          func(t *testing.T) driver.Executor { return newExecutor(t, d) },
		Image:        cloudflaretest.Reference(cloudflaretest.Busybox(t)),
		MissingImage: cloudflaretest.Reference("sandbox-test/no-such-image:1"),
		ImageUnseen:  true,
		StandIn:      true,
		FewAttempts:  true,
		Resources:    lite(t),
		StopBehindBack: func(t *testing.T, h driver.Handle) {
			t.Helper()
			r, err := sandbox.ExecRequest{Command: []string{"hostname"}}.Normalize()
			if err != nil {
				t.Fatal(err)
			}
			x := newExecutor(t, d)
			res, err := x.Exec(t.Context(), h, r)
			if err := errors.Join(err, x.Close()); err != nil {
				t.Fatal(err)
			}
			cloudflaretest.Crash(t, strings.TrimSpace(string(res.Stdout)))
		},
	}
}
