package reconciler

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// envGatewayProxy names the upstream proxy of gateways where the flag does not: its password shows in
// no list of processes then.
const envGatewayProxy = "SANDBOX_GATEWAY_PROXY"

// gatewayFlags are the flags that say how the gateways of restricted sandboxes get out themselves.
type gatewayFlags struct{ proxy, authority string }

func (g *gatewayFlags) add(f *pflag.FlagSet, to *docker.Gateway) {
	f.StringVar(&to.Network, "gateway-network", "", "`network` of the engine that gateways of restricted sandboxes are on (default: the engine's bridge)")
	f.StringSliceVar(&to.DNS, "gateway-dns", nil, "`address` of a name server that gateways ask (default: those of the engine)")
	f.StringVar(&g.proxy, "gateway-proxy", "", "`URL` of an HTTP proxy that gateways go through, as http://proxy.example:3128; with a password, give it as "+envGatewayProxy)
	f.StringVar(&g.authority, "gateway-proxy-ca", "", "PEM `file` of the private authority that vouches for an https proxy")
}

// fill completes the settings. Errors: Invalid.
func (g *gatewayFlags) fill(to *docker.Gateway, getenv func(string) string) error {
	if g.proxy == "" {
		g.proxy = getenv(envGatewayProxy)
	}
	if g.proxy == "" {
		if g.authority != "" {
			return sandbox.Errorf(sandbox.Invalid, "--gateway-proxy-ca %s vouches for nothing without --gateway-proxy", g.authority)
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
