package docker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/gateways"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// restricted is an environment with a gateway and its own outside: a container with a private address on a network that
// the gateway shares.
type restricted struct {
	*world
	api     *dockerapi.Client
	config  docker.Config
	network string
	outside string // its address
	egress  sandbox.Egress
}

func compileTestdata(t testing.TB, program string) []byte {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", program, "main.go"))
	must(t, err)
	return executortest.Compile(t, string(source))
}

// newRestricted provisions an environment that allows good.test and, on odd ports, odd.test.
func newRestricted(t testing.TB) *restricted {
	t.Helper()
	return newRestrictedOf(t, func(*restricted) {})
}

// newRestrictedOf is newRestricted with other settings of the gateway.
func newRestrictedOf(t testing.TB, change func(r *restricted)) *restricted {
	t.Helper()
	r := &restricted{api: dockertest.Engine(t), network: "sandbox-test-" + sandbox.RandomIDs(12)}
	var prefix string
	r.outside, prefix = serveOutside(t, r.api, r.network, dockerapi.NetworkCreateOptions{})
	image := dockertest.Keep(t, []dockertest.File{
		{Name: "probe", Mode: 0o755, Content: compileTestdata(t, "probe")}, {Name: "etc/", Mode: 0o755},
		{Name: "tmp/", Mode: 0o1777},
	})
	var hosts []string
	for name, address := range map[string]string{
		"good.test":          r.outside,
		"odd.test":           r.outside,
		"evil.test":          r.outside,
		"sub.good.test":      r.outside,
		"private.good.test":  "10.9.8.7",
		"metadata.good.test": "169.254.169.254",
		"loop.good.test":     "127.0.0.1",
		"six.good.test":      "fd00:ec2::254",
	} {
		hosts = append(hosts, name+":"+address)
	}
	slices.Sort(hosts)
	r.config = docker.Config{
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Gateway: gateways.Config{Network: r.network, Hosts: hosts},
	}
	change(r)
	x, err := docker.New(r.config)
	must(t, err)
	r.egress = sandbox.Egress{
		Allow: []sandbox.EgressRule{
			{Host: "good.test"}, {Host: "*.good.test"}, {Host: "odd.test", Ports: []int{8080, 8443}},
		},
		PrivateCIDRs: []string{prefix},
	}
	r.world = newWorldOf(t, x, image,
		func(s *sandbox.EnvironmentSpec) { s.Network, s.Egress = sandbox.NetworkRestricted, &r.egress })
	return r
}

// allow changes the environment's rules.
func (r *restricted) allow(t testing.TB, e sandbox.Egress) {
	t.Helper()
	spec := r.environment()
	spec.Network, spec.Egress = sandbox.NetworkRestricted, &e
	must(t, r.x.Provision(t.Context(), r.ref, spec))
}

// serveOutside creates a network with the outside on it. It returns the outside's address and the network's range.
func serveOutside(t testing.TB, api *dockerapi.Client, network string,
	options dockerapi.NetworkCreateOptions) (address, subnet string) {
	t.Helper()
	image := dockertest.Keep(t, []dockertest.File{{Name: "outside", Mode: 0o755, Content: compileTestdata(t, "outside")}})
	_, err := api.NetworkCreate(t.Context(), network, options)
	must(t, err)
	t.Cleanup(func() { must(t, api.NetworkRemove(context.WithoutCancel(t.Context()), network)) })
	made, err := api.ContainerCreate(t.Context(),
		&dockerapi.ContainerConfig{Image: image, Entrypoint: []string{"/outside"}},
		&dockerapi.HostConfig{NetworkMode: dockerapi.NetworkMode(network)}, nil, nil, network)
	must(t, err)
	t.Cleanup(func() {
		must(t,
			api.ContainerRemove(context.WithoutCancel(t.Context()), made.ID, dockerapi.ContainerRemoveOptions{Force: true}))
	})
	must(t, api.ContainerStart(t.Context(), made.ID, dockerapi.StartOptions{}))
	eventually(t, "the outside is ready", func() bool { return strings.Contains(logsOf(t, api, made.ID), "ready") })
	c, err := api.ContainerInspect(t.Context(), made.ID)
	must(t, err)
	n, err := api.NetworkInspect(t.Context(), network, dockerapi.NetworkInspectOptions{})
	must(t, err)
	return c.NetworkSettings.Networks[network].IPAddress, n.IPAM.Config[0].Subnet
}

func logsOf(t testing.TB, api *dockerapi.Client, id string) string {
	t.Helper()
	logs, err := api.ContainerLogs(t.Context(), id, dockerapi.LogsOptions{ShowStdout: true})
	must(t, err)
	defer logs.Close()
	var out, errOut bytes.Buffer
	_, err = dockerapi.StdCopy(&out, &errOut, logs)
	must(t, err)
	return out.String()
}

// spec describes a sandbox with the environment's egress.
func (r *restricted) spec() driver.SandboxSpec {
	spec := r.world.spec()
	spec.Network, spec.Egress = sandbox.NetworkRestricted, r.egress
	return spec
}

func (r *restricted) spawn(t testing.TB) driver.Handle {
	t.Helper()
	spec := r.spec()
	must(t, r.x.Spawn(t.Context(), spec))
	return spec.Handle
}

// probe tries one way out.
func (r *restricted) probe(t testing.TB, h driver.Handle, args ...string) string {
	t.Helper()
	return strings.TrimSpace(r.exec(t, h, append([]string{"/probe"}, args...)...))
}

func (r *restricted) gateway() string {
	return "sandbox-" + r.ref.LedgerID + "-env-" + r.ref.EnvironmentID + "-gateway"
}

// attempts returns the gateway's log of a sandbox.
func (r *restricted) attempts(t testing.TB, h driver.Handle) []audit.Record {
	t.Helper()
	var list []audit.Record
	for line := range strings.Lines(logsOf(t, r.api, r.gateway())) {
		var record audit.Record
		must(t, json.Unmarshal([]byte(line), &record))
		if record.Sandbox == h.SandboxID {
			list = append(list, record)
		}
	}
	return list
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testwait.Until(t, time.Minute, what, ok)
}

func TestARestrictedSandboxReachesWhatIsAllowed(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	h := r.spawn(t)
	for name, row := range map[string]struct {
		probe []string
		want  string
	}{
		"TLS through the proxy":        {[]string{"get", "https://good.test/"}, "reached host=good.test sni=good.test"},
		"plain HTTP through the proxy": {[]string{"get", "http://good.test/"}, "reached host=good.test sni="},
		"a name below a domain": {[]string{"get", "https://sub.good.test/"},
			"reached host=sub.good.test sni=sub.good.test"},
		"other ports": {[]string{"get", "https://odd.test:8443/"},
			"reached host=odd.test:8443 sni=odd.test"},
		"TLS without a proxy":           {[]string{"direct", "https://good.test/"}, "reached host=good.test sni=good.test"},
		"plain HTTP without a proxy":    {[]string{"direct", "http://good.test/"}, "reached host=good.test sni="},
		"other ports without a proxy":   {[]string{"direct", "http://odd.test:8080/"}, "reached host=odd.test:8080 sni="},
		"the socket itself, as a proxy": {[]string{"socket", "/.sandbox-egress/proxy.sock"}, "reached"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := r.probe(t, h, row.probe...); !strings.HasPrefix(got, row.want) {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
	eventually(t, "the log has the 8 connections", func() bool {
		opened := 0
		for _, a := range r.attempts(t, h) {
			if a.Kind == audit.Opened && a.Agent == "did:plc:docker" && a.Address == r.outside {
				opened++
			}
		}
		return opened == 8
	})
}

// The rows are the known ways around allow lists. logged is empty if the attempt cannot reach the gateway, because
// there is no interface, resolver or capability.
func TestARestrictedSandboxReachesNothingElse(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	bridge, err := r.api.NetworkInspect(t.Context(), r.network, dockerapi.NetworkInspectOptions{})
	must(t, err)
	host := bridge.IPAM.Config[0].Gateway
	h, sibling := r.spawn(t), r.spawn(t)
	for name, row := range map[string]struct {
		probe  []string
		logged policy.Reason
	}{
		"DNS of another resolver":      {[]string{"resolve", r.outside + ":53", "outside.example"}, ""},
		"DNS of a public resolver":     {[]string{"resolve", "8.8.8.8:53", "outside.example"}, ""},
		"DNS of the engine":            {[]string{"resolve", "127.0.0.11:53", "outside.example"}, ""},
		"UDP":                          {[]string{"udp", r.outside + ":53"}, ""},
		"QUIC's port":                  {[]string{"udp", "1.1.1.1:443"}, ""},
		"DNS over TLS":                 {[]string{"tcp", "1.1.1.1:853"}, ""},
		"DNS over HTTPS by address":    {[]string{"connect", "1.1.1.1:443", "cloudflare-dns.com"}, policy.InvalidHost},
		"DNS over HTTPS by name":       {[]string{"get", "https://dns.google/dns-query"}, policy.HostNotAllowed},
		"a tunnel in names":            {[]string{"get", "http://c2VjcmV0.evil.test/"}, policy.HostNotAllowed},
		"an address without the proxy": {[]string{"tcp", r.outside + ":80"}, ""},
		"an address through the proxy": {[]string{"get", "http://" + r.outside + "/"}, policy.InvalidHost},
		"a decimal address":            {[]string{"connect", "2130706433:443", "good.test"}, policy.InvalidHost},
		"a hexadecimal address":        {[]string{"connect", "0x7f000001:80", "good.test"}, policy.InvalidHost},
		"a short address":              {[]string{"connect", "127.1:80", "good.test"}, policy.InvalidHost},
		"IPv6":                         {[]string{"tcp", "[2606:4700:4700::1111]:443"}, ""},
		"IPv6 through the proxy": {[]string{"connect", "[2606:4700:4700::1111]:443", "good.test"},
			policy.InvalidHost},
		"a mapped address": {[]string{"connect", "[::ffff:169.254.169.254]:80", "good.test"},
			policy.InvalidHost},
		"a NAT64 address": {[]string{"connect", "[64:ff9b::a9fe:a9fe]:80", "good.test"},
			policy.InvalidHost},
		"metadata without the proxy": {[]string{"tcp", "169.254.169.254:80"}, ""},
		"metadata by address": {[]string{"get", "http://169.254.169.254/latest/meta-data/"},
			policy.InvalidHost},
		"metadata by an allowed name":       {[]string{"get", "http://metadata.good.test/"}, policy.AddressRefused},
		"metadata by an allowed name in v6": {[]string{"get", "http://six.good.test/"}, policy.AddressRefused},
		"a private address by name":         {[]string{"get", "https://private.good.test/"}, policy.AddressRefused},
		"the gateway itself by name":        {[]string{"get", "http://loop.good.test/"}, policy.AddressRefused},
		"the host's side of the bridge":     {[]string{"tcp", host + ":80"}, ""},
		"the default bridge":                {[]string{"tcp", "172.17.0.1:80"}, ""},
		"a name that is not allowed":        {[]string{"get", "https://evil.test/"}, policy.HostNotAllowed},
		"a name that ends alike":            {[]string{"get", "https://evilgood.test/"}, policy.HostNotAllowed},
		"a name that begins alike":          {[]string{"get", "https://good.test.evil.test/"}, policy.HostNotAllowed},
		"the domain of another rule":        {[]string{"get", "https://test/"}, policy.HostNotAllowed},
		"a NUL byte": {
			[]string{"raw", `CONNECT good.test\x00.evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n`}, "invalid_request",
		},
		"another port":        {[]string{"connect", "good.test:22", "good.test"}, policy.PortNotAllowed},
		"another name in TLS": {[]string{"connect", "good.test:443", "evil.test"}, "server_name_mismatch"},
		"no name in TLS":      {[]string{"connect", "good.test:443", ""}, "no_server_name"},
		"plain HTTP to 443":   {[]string{"relay", "good.test:443", "good.test"}, "not_tls"},
		"another Host":        {[]string{"relay", "good.test:80", "evil.test"}, "host_mismatch"},
		"a redirect to a private host": {[]string{"get", "http://good.test/redirect?to=http://private.good.test/"},
			policy.AddressRefused},
		"a redirect to another host": {[]string{"get", "http://good.test/redirect?to=http://evil.test/"},
			policy.HostNotAllowed},
		"a CONNECT in a request's clothes": {
			[]string{"raw", `CONNECT http://good.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n`}, policy.InvalidHost,
		},
		"HTTP/2 by an upgrade": {[]string{
			"raw", `GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n`,
		}, "upgrade_refused"},
		"ICMP, raw, packet and SCTP sockets": {[]string{"packet"}, ""},
		"a sibling's socket": {[]string{"socket", "/.sandbox-egress/../" + sibling.SandboxID + "/proxy.sock"},
			""},
		"the control socket": {[]string{"socket", "/.sandbox-egress/../../control/control.sock"}, ""},
		"the control socket by its place": {[]string{
			"socket", "/var/lib/docker/volumes/sandbox-" + r.ref.LedgerID + "-env-docker-1-egress/_data/control/control.sock",
		}, ""},
		"the engine's socket": {[]string{"socket", "/var/run/docker.sock"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(r.attempts(t, h))
			if got := r.probe(t, h, row.probe...); !strings.HasPrefix(got, "blocked: ") {
				t.Errorf("it says %q", got)
			}
			if row.logged == "" {
				for _, a := range r.attempts(t, h)[before:] {
					if a.Kind != audit.Closed || a.Verdict != audit.Allowed { // an attempt of the previous row may end late
						t.Errorf("the gateway saw %+v", a)
					}
				}
				return
			}
			eventually(t, "it is logged as "+string(row.logged), func() bool {
				return slices.ContainsFunc(r.attempts(t, h)[before:], func(a audit.Record) bool {
					return a.Verdict == audit.Refused && a.Reason == row.logged
				})
			})
		})
	}
}

// TestTheContractOfRestrictedNetworks is the part of the contract that needs an outside.
func TestTheContractOfRestrictedNetworks(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	executortest.RunRestricted(t, executortest.Config{
		New: func(t *testing.T) driver.Executor {
			x, err := docker.New(r.config)
			must(t, err)
			return x
		},
		Image: dockertest.Busybox(t),
	}, executortest.Outside{Host: "good.test", Other: "evil.test", PrivateCIDRs: r.egress.PrivateCIDRs})
}

// TestAGatewayThatWentWithItsEnvironmentStaysAway: other callers use it meanwhile, like a reconciler's passes.
func TestAGatewayThatWentWithItsEnvironmentStaysAway(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	for round := range 4 {
		if round > 0 {
			spec := r.environment()
			spec.Network = sandbox.NetworkRestricted
			must(t, r.x.Provision(t.Context(), r.ref, spec))
		}
		done := make(chan struct{})
		var asking sync.WaitGroup
		for range 4 {
			asking.Go(func() {
				for {
					_ = r.x.ServeCredentials(t.Context(), r.ref, nil) // it is removed during the call
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		must(t, r.x.Deprovision(t.Context(), r.ref))
		close(done)
		asking.Wait()
		if left := objectsOfLedger(t, r.ref.LedgerID); len(left) > 0 {
			t.Fatalf("in round %d came back: %q", round, left)
		}
	}
}
