package daemon

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/gateways"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// envGatewayProxy replaces --gateway-proxy, so that the proxy's password does not show in the process list.
const envGatewayProxy = "SANDBOX_GATEWAY_PROXY"

// gatewayFlags configure how the gateways of restricted sandboxes reach the network.
type gatewayFlags struct{ proxy, authority string }

func (g *gatewayFlags) add(f *pflag.FlagSet, to *gateways.Config) {
	f.StringVar(&to.Network, "gateway-network", "",
		"engine `network` for the gateways of restricted sandboxes (default: the engine's bridge)")
	flags.List(f, &to.DNS, "gateway-dns", nil,
		"`address` of a name server for gateways (default: the engine's)")
	f.StringVar(&g.proxy, "gateway-proxy", "", "`URL` of an HTTP proxy for gateways, "+
		"such as http://proxy.example:3128; set "+envGatewayProxy+" instead if it holds a password")
	f.StringVar(&g.authority, "gateway-proxy-ca", "",
		"PEM `file` of the private certificate authority of an https proxy")
}

// fill completes the settings from the flags and the environment. Errors: Invalid.
func (g *gatewayFlags) fill(to *gateways.Config, getenv func(string) string) error {
	if g.proxy == "" {
		g.proxy = getenv(envGatewayProxy)
	}
	if g.proxy == "" {
		if g.authority != "" {
			return sandbox.Errorf(sandbox.Invalid, "--gateway-proxy-ca %s needs --gateway-proxy",
				g.authority)
		}
		return nil
	}
	to.Upstream = &control.Upstream{URL: g.proxy}
	if g.authority == "" {
		return nil
	}
	pem, err := os.ReadFile(g.authority)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "--gateway-proxy-ca: %w", err)
	}
	to.Upstream.CA = string(pem)
	return nil
}
