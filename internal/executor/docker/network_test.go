package docker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (w *world) full() driver.SandboxSpec {
	spec := w.spec()
	spec.Network = sandbox.NetworkFull
	return spec
}

// lan returns the only network of a container.
func lan(t testing.TB, container string) *dockerapi.EndpointSettings {
	t.Helper()
	c, err := dockertest.Engine(t).ContainerInspect(t.Context(), container)
	must(t, err)
	if len(c.NetworkSettings.Networks) != 1 {
		t.Fatalf("container %s is on %d networks", container, len(c.NetworkSettings.Networks))
	}
	for _, n := range c.NetworkSettings.Networks {
		return n
	}
	return nil
}

// removeContainer and removeNetwork remove the test's own objects.
func removeContainer(t testing.TB, id string) {
	t.Helper()
	must(t, dockertest.Engine(t).ContainerRemove(context.WithoutCancel(t.Context()), id,
		dockerapi.ContainerRemoveOptions{Force: true}))
}

func removeNetwork(t testing.TB, id string) {
	t.Helper()
	must(t, dockertest.Engine(t).NetworkRemove(context.WithoutCancel(t.Context()), id))
}

// hears requests a web page from inside a sandbox. It returns the page's text, "" without an answer.
func (w *world) hears(t testing.TB, h driver.Handle, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	must(t, err)
	return w.exec(t, h, "sh", "-c",
		fmt.Sprintf("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 3 %s %s 2>/dev/null | tail -n 1; true", host, port))
}

// standsOpen is hears for an address that must be unreachable. Engine 20.10 drops its isolation of bridges for some
// milliseconds whenever a program, such as another test, creates a network. A path that is really open is open at each
// attempt.
func (w *world) standsOpen(t testing.TB, h driver.Handle, address string) (said string) {
	t.Helper()
	for range 8 {
		if said = w.hears(t, h, address); said == "" {
			return ""
		}
	}
	return said
}

// serveOn runs the outside of testdata in a container, and returns its id.
func serveOn(t *testing.T, host *dockerapi.HostConfig, config dockerapi.ContainerConfig) string {
	t.Helper()
	api := dockertest.Engine(t)
	config.Image = dockertest.Keep(t,
		[]dockertest.File{{Name: "outside", Mode: 0o755, Content: compileTestdata(t, "outside")}})
	config.Entrypoint = []string{"/outside"}
	made, err := api.ContainerCreate(t.Context(), &config, host, nil, nil, "sandbox-test-"+sandbox.RandomIDs(12))
	must(t, err)
	t.Cleanup(func() { removeContainer(t, made.ID) })
	must(t, api.ContainerStart(t.Context(), made.ID, dockerapi.StartOptions{}))
	eventually(t, "the outside is ready", func() bool { return strings.Contains(logsOf(t, api, made.ID), "ready") })
	return made.ID
}

// The test checks the security guide's statements about network full: which addresses are reachable, and which are not.
func TestAFullNetworkReachesNoOtherContainerButTheHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	spec, sibling := w.full(), w.full()
	must(t, w.x.Spawn(t.Context(), spec))
	must(t, w.x.Spawn(t.Context(), sibling))
	own, theirs := lan(t, name(spec.Handle)), lan(t, name(sibling.Handle))
	if own.NetworkID == theirs.NetworkID {
		t.Fatal("two sandboxes are on one network")
	}

	public := dockerapi.Port("80/tcp")
	published := serveOn(t,
		&dockerapi.HostConfig{NetworkMode: "bridge", PortBindings: dockerapi.PortMap{public: {{HostIP: "0.0.0.0"}}}},
		dockerapi.ContainerConfig{ExposedPorts: dockerapi.PortSet{public: {}}})
	c, err := dockertest.Engine(t).ContainerInspect(t.Context(), published)
	must(t, err)
	port := c.NetworkSettings.Ports[public][0].HostPort
	for what, address := range map[string]string{
		"a container on the shared bridge":    lan(t, published).IPAddress + ":80",
		"the same, in TLS":                    lan(t, published).IPAddress + ":443",
		"a sibling":                           theirs.IPAddress + ":80",
		"the engine's API, where it has none": own.Gateway + ":2375",
	} {
		if got := w.standsOpen(t, spec.Handle, address); got != "" {
			t.Errorf("%s (%s) says %q", what, address, got)
		}
	}
	if got := w.exec(t, spec.Handle,
		"sh", "-c", "ping -c 1 -W 1 "+own.Gateway+" 2>&1; true"); !strings.Contains(got, "permission denied") {
		t.Errorf("it may make packets of its own: %q", got)
	}

	l, err := net.Listen("tcp4", "0.0.0.0:0")
	must(t, err)
	server := &http.Server{
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { fmt.Fprint(rw, "host") }),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		must(t, server.Close())
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	_, listens, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	for what, row := range map[string]struct{ address, want string }{
		"the host by the sandbox's own bridge": {own.Gateway + ":" + listens, "host"},
		"the host by a sibling's bridge":       {theirs.Gateway + ":" + listens, "host"},
		"a published port by the host":         {own.Gateway + ":" + port, "reached"},
	} {
		if got := w.hears(t, spec.Handle, row.address); !strings.HasPrefix(got, row.want) {
			t.Errorf("%s is not reached any more: the security guide says that it is (%q)", what, got)
		}
	}
}

// Two reconcilers share a pool of four subnets. Another program uses two of them.
func TestANetworkPoolIsSharedUntilItIsUsedUp(t *testing.T) {
	t.Parallel()
	api := dockertest.Engine(t)
	at := fmt.Sprintf("10.%d.%d.", 208+rand.IntN(4), rand.IntN(256)) // other tests use this engine too
	pool := netip.MustParsePrefix(at + "64/26")
	foreign, err := api.NetworkCreate(t.Context(), "sandbox-test-"+sandbox.RandomIDs(12), dockerapi.NetworkCreateOptions{
		IPAM: &dockerapi.IPAM{Config: []dockerapi.IPAMConfig{{Subnet: at + "64/27"}}}})
	must(t, err)
	t.Cleanup(func() { removeNetwork(t, foreign.ID) })
	executor := func() *docker.Executor {
		x, err := docker.New(docker.Config{NetworkPool: pool})
		must(t, err)
		return x
	}
	w := newWorldOf(t, executor(), dockertest.Busybox(t),
		func(s *sandbox.EnvironmentSpec) { s.Network = sandbox.NetworkFull })
	other := executor()
	t.Cleanup(func() { must(t, other.Close()) })

	var mu sync.Mutex
	var made []driver.Handle
	var refused []error
	var all sync.WaitGroup
	for i := range 5 {
		x := []*docker.Executor{w.x, other}[i%2]
		all.Go(func() {
			spec := w.full()
			err := x.Spawn(t.Context(), spec)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				refused = append(refused, errors.Join(err, x.Kill(t.Context(), spec.Handle)))
				return
			}
			made = append(made, spec.Handle)
		})
	}
	all.Wait()
	if len(made) != 2 || len(refused) != 3 {
		t.Fatalf("%d have a network, %d have none: %v", len(made), len(refused), refused)
	}
	for _, err := range refused {
		wantCode(t, err, sandbox.CapacityExceeded)
		if text := err.Error(); !strings.Contains(text, pool.String()) || !strings.Contains(text, "--network-pool") ||
			!strings.Contains(text, "docker.network_pool") {
			t.Errorf("the error does not say what to do: %v", err)
		}
	}
	subnets := []string{}
	for _, h := range made {
		p := netip.MustParsePrefix(lan(t, name(h)).IPAddress + "/28")
		if !pool.Contains(p.Addr()) {
			t.Errorf("%s is not of the pool %s", p, pool)
		}
		subnets = append(subnets, p.Masked().String())
	}
	slices.Sort(subnets)
	if want := []string{at + "112/28", at + "96/28"}; !slices.Equal(subnets, want) {
		t.Errorf("the subnets are %v, want %v", subnets, want)
	}
	must(t, other.Kill(t.Context(), made[0]))
	must(t, w.x.Spawn(t.Context(), w.full()))
	if _, err := api.NetworkInspect(t.Context(), foreign.ID, dockerapi.NetworkInspectOptions{}); err != nil {
		t.Errorf("what was not ours: %v", err)
	}
}

func TestWhatIsNotOursKeepsTheNameOfANetwork(t *testing.T) {
	t.Parallel()
	api, w := dockertest.Engine(t), newWorld(t, dockertest.Busybox(t))
	spec := w.full()
	theirs, err := api.NetworkCreate(t.Context(), name(spec.Handle)+"-network", dockerapi.NetworkCreateOptions{})
	must(t, err)
	t.Cleanup(func() { removeNetwork(t, theirs.ID) })
	wantCode(t, w.x.Spawn(t.Context(), spec), sandbox.Conflict)
	must(t, w.x.Kill(t.Context(), spec.Handle))
	_, err = api.NetworkInspect(t.Context(), theirs.ID, dockerapi.NetworkInspectOptions{})
	must(t, err)
}

func TestTheAuditKnowsASandboxsOwnNetwork(t *testing.T) {
	t.Parallel()
	api, w := dockertest.Engine(t), newWorld(t, dockertest.Busybox(t))
	spec, sibling := w.full(), w.full()
	must(t, w.x.Spawn(t.Context(), spec))
	must(t, w.x.Spawn(t.Context(), sibling))
	findings := func() (found []string) {
		checks, err := w.x.Audit(t.Context(), w.ref.LedgerID)
		must(t, err)
		for _, c := range checks {
			if c.Rule == "5.30" && c.Verdict == sandbox.VerdictFinding {
				found = append(found, c.SandboxID)
			}
		}
		return found
	}
	if found := findings(); len(found) > 0 {
		t.Errorf("findings of %v", found)
	}
	theirs := lan(t, name(sibling.Handle)).NetworkID
	must(t, api.NetworkConnect(t.Context(), theirs, name(spec.Handle), nil))
	t.Cleanup(func() {
		must(t, api.NetworkDisconnect(context.WithoutCancel(t.Context()), theirs, name(spec.Handle), true))
	})
	if found := findings(); !slices.Equal(found, []string{spec.SandboxID}) {
		t.Errorf("findings of %v, want %s", found, spec.SandboxID)
	}
}

func TestAPoolThatIsNoneIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"10.0.0.0/8", "10.213.0.0/29", "fd00::/20"} {
		_, err := docker.New(docker.Config{NetworkPool: netip.MustParsePrefix(p)})
		wantCode(t, err, sandbox.Invalid)
	}
}

// TestASandboxWhoseNetworkWasPrunedIsNotMadeWhole: for a prune, the network of a stopped container is unused.
func TestASandboxWhoseNetworkWasPrunedIsNotMadeWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	spec := w.full()
	must(t, w.x.Spawn(t.Context(), spec))
	id := lan(t, name(spec.Handle)).NetworkID
	must(t, w.x.Sleep(t.Context(), spec.Handle, sandbox.SleepStop))
	removeNetwork(t, id)
	_, err := w.x.Wake(t.Context(), spec.Handle)
	if sandbox.CodeOf(err) != sandbox.NotFound || sandbox.ReasonOf(err) != sandbox.ReasonPartMissing {
		t.Errorf("waking it ended with %v", err)
	}
	if o, err := w.x.Inspect(t.Context(), spec.Handle); err != nil || o.State != sandbox.StateStopped {
		t.Errorf("it is %s, %v", o.State, err)
	}
	must(t, w.x.Kill(t.Context(), spec.Handle))
}

// Engines let every process of a container ping without a raw socket. A ping would reveal the neighbours.
func TestASandboxWithAFullNetworkCannotPing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Keep(t, append(dockertest.BusyboxFiles(t),
		dockertest.File{Name: "probe", Mode: 0o755, Content: compileTestdata(t, "probe")}), "ENV PATH=/bin"))
	spec := w.full()
	must(t, w.x.Spawn(t.Context(), spec))
	for _, address := range []string{"127.0.0.1", lan(t, name(spec.Handle)).Gateway} {
		if said := w.exec(t, spec.Handle, "/probe", "ping", address); !strings.HasPrefix(said, "blocked: open a socket") {
			t.Errorf("a ping of %s: %q", address, said)
		}
	}
}
