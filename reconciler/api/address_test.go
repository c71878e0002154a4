package api_test

import (
	"net"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestAddressesAreBelievedOfTrustedProxiesOnly(t *testing.T) {
	t.Parallel()
	networks := func(texts ...string) (all []net.IPNet) {
		for _, text := range texts {
			_, n, err := net.ParseCIDR(text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, *n)
		}
		return all
	}
	for _, row := range []struct {
		trusted   []net.IPNet
		forwarded string
		want      string
	}{
		{nil, "192.0.2.7", "127.0.0.1"},
		{networks("10.0.0.0/8"), "192.0.2.7", "127.0.0.1"},
		{networks("127.0.0.0/8"), "", "127.0.0.1"},
		{networks("127.0.0.0/8"), "192.0.2.7", "192.0.2.7"},
		{networks("127.0.0.0/8"), "198.51.100.1, 192.0.2.7", "192.0.2.7"},
		{networks("127.0.0.0/8", "10.0.0.0/8"), "198.51.100.1, 192.0.2.7,10.1.2.3", "192.0.2.7"},
		{networks("127.0.0.0/8", "10.0.0.0/8"), "10.1.2.3", "10.1.2.3"},
		{networks("127.0.0.0/8"), "2001:db8::1", "2001:db8::1"},
		{networks("127.0.0.0/8"), "192.0.2.7, <script>", "127.0.0.1"},
	} {
		w := newWorld(t, func(c *api.Config) { c.TrustedProxies = row.trusted })
		want[sandbox.Environment](w, w.do("PUT", "/v1/environments/catan-7", put, "X-Forwarded-For", row.forwarded), 200)
		events := want[wire.EventPage](w, w.do("GET", "/v1/events", ""), 200).Events
		if len(events) != 1 || events[0].Address != row.want {
			t.Errorf("trusting %v, a request for %q comes from %+v, want %s", row.trusted, row.forwarded, events, row.want)
		}
	}
}
