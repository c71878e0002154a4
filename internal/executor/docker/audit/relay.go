package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"
)

// notOfRelays are the rules that do not apply to relays. Rules for relays replace them where it matters. A relay runs
// as root with one capability, shares the CPU with its sandboxes, restarts automatically, and runs our own program,
// which writes no large files.
var notOfRelays = []string{"4.1", "5.4", "5.12", "5.15", "5.19", "S.1", "S.12"}

// relayRules are the rules for relays: the remaining rules of every container, and their own.
var relayRules = append(slices.DeleteFunc(slices.Clone(containerRules),
	func(r rule) bool { return slices.Contains(notOfRelays, r.number) }),
	rule{number: "R.1", title: "it runs only the relay's program", finding: notTheRelay},
	rule{number: "R.2", title: "its only capability is CHOWN", finding: moreThanChown},
	rule{
		number:  "R.3",
		title:   "it is on no network",
		finding: when(func(a audited) bool { return !a.host().NetworkMode.IsNone() }, "it is on a network"),
	},
	rule{number: "R.4", title: "only its channels are mounted", finding: moreThanChannels},
)

func notTheRelay(a audited) string {
	c := a.container
	if c.Path != relay.Path || !slices.Equal(c.Args, []string{"relay", "serve", "-root", relay.Root}) ||
		!strings.HasPrefix(c.Config.Image, "sandbox-"+c.Config.Labels[objects.LabelLedger]+"-relay:") {
		return fmt.Sprintf("it runs %s %s of image %s", c.Path, strings.Join(c.Args, " "), c.Config.Image)
	}
	return ""
}

func moreThanChown(a audited) string {
	added := slices.DeleteFunc(slices.Clone(a.host().CapAdd), func(c string) bool {
		return strings.EqualFold(strings.TrimPrefix(strings.ToUpper(c), "CAP_"), "CHOWN")
	})
	if len(added) > 0 {
		return "it is given " + strings.Join(added, ", ")
	}
	if !slices.ContainsFunc(a.host().CapDrop, func(c string) bool { return strings.EqualFold(c, "ALL") }) {
		return "not all capabilities are dropped"
	}
	return ""
}

func moreThanChannels(a audited) string {
	for _, m := range a.container.Mounts {
		if m.Name != objects.ChannelsVolume(a.container.Config.Labels[objects.LabelLedger]) || m.Destination != relay.Root {
			return fmt.Sprintf("%s is mounted at %s", m.Source, m.Destination)
		}
	}
	return ""
}
