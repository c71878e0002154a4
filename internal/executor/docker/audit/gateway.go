package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway"
)

// notOfGateways are the rules that do not apply to gateways. Rules for gateways replace them where it matters. A
// gateway shares the CPU with its sandboxes, restarts automatically, is on a network with Internet access, and runs our
// own program, which needs no file limits and keeps its data in a volume.
var notOfGateways = []string{"5.12", "5.15", "5.19", "5.30", "S.1", "S.12"}

// gatewayRules are the rules for gateways: the remaining rules of every container, and their own.
var gatewayRules = append(slices.DeleteFunc(slices.Clone(containerRules),
	func(r rule) bool { return slices.Contains(notOfGateways, r.number) }),
	rule{number: "G.1", title: "it runs only the gateway's program", finding: notTheGateway},
	rule{number: "G.2", title: "it is only on its configured network", finding: manyNetworks},
)

func notTheGateway(a audited) string {
	c := a.container
	repository := "sandbox-" + c.Config.Labels[objects.LabelLedger] + "-gateway:"
	if c.Path != gateway.Path || !strings.HasPrefix(c.Config.Image, repository) {
		return fmt.Sprintf("it runs %s of image %s", c.Path, c.Config.Image)
	}
	return ""
}

func manyNetworks(a audited) string {
	if n := len(a.networks()); n > 1 {
		return fmt.Sprintf("it is on %d networks", n)
	}
	return ""
}
