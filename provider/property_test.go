package provider_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	frameworkprovider "github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry/registrytest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// inMemory is the provider, with its service on an in-memory backend.
type inMemory struct {
	frameworkprovider.Provider
	// configured returns the provider of one run.
	configured func() *configured.Provider
}

// Configure passes that service to the resources, whatever the configuration says.
func (p *inMemory) Configure(_ context.Context, _ frameworkprovider.ConfigureRequest,
	resp *frameworkprovider.ConfigureResponse) {
	resp.ResourceData = p.configured()
}

// newInMemory returns the server, its schemas, its service, and a directory that sandboxes may use.
func newInMemory(t *testing.T) (_ tfprotov6.ProviderServer, _ *tfprotov6.GetProviderSchemaResponse,
	_ *leasing.Service, directory string) {
	t.Helper()
	return newOnBackend(t, fake.New("engine", nil))
}

// newOnBackend is newInMemory on a backend.
func newOnBackend(t *testing.T, backend *fake.Executor) (_ tfprotov6.ProviderServer,
	_ *tfprotov6.GetProviderSchemaResponse, _ *leasing.Service, directory string) {
	t.Helper()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		must(t, err)
	}
	store, err := ledger.Open(t.Context(), "sqlite://"+filepath.Join(dir, "ledger.db"), ledger.Options{})
	must(err)
	states, err := snapshotstore.Open(t.Context(), "file://"+filepath.Join(dir, "state"))
	must(err)
	shared := t.TempDir()
	machine, err := host.New(host.Config{
		Directories: []string{shared}, Variables: []string{"*"},
		LookupEnv: func(name string) (string, bool) { return name, true },
	})
	must(err)
	knownHosts := filepath.Join(dir, "known_hosts")
	must(os.WriteFile(knownHosts, nil, 0o600))
	mirrors, err := gitmirror.New(gitmirror.Config{Dir: filepath.Join(dir, "mirrors"), KnownHosts: knownHosts,
		Allow: []string{"git.example.com", "ssh://git.example.com", "bucket.example.com"}})
	must(err)
	engine, err := leasing.New(leasing.Config{
		Mirrors: mirrors,
		Store:   store, Executors: []driver.Executor{backend}, Objects: states, Host: machine,
		Keys: seal.InFile(filepath.Join(dir, "key"), true), Version: "test",
	})
	must(err)
	t.Cleanup(func() { must(errors.Join(engine.Close(), states.Close(), store.Close())) })
	info, err := engine.Ledger(t.Context())
	must(err)
	ids, images := sandbox.RandomIDs, &imageEngine{}
	p := &inMemory{Provider: provider.New("test")(), configured: func() *configured.Provider {
		return &configured.Provider{
			Open: func(context.Context) (configured.Service, error) {
				return configured.Service{Service: engine, LedgerID: info.ID}, nil
			},
			Prices: func(context.Context) (map[sandbox.Backend]sandbox.PriceBook, error) {
				return map[sandbox.Backend]sandbox.PriceBook{
					sandbox.Docker: pricing.Cloudflare(), sandbox.Cloudflare: pricing.Cloudflare(),
				}, nil
			},
			Images:   image.NewBuilder(func() (image.Engine, error) { return images, nil }),
			NewOwner: func() string { return configured.OwnerPrefix + ids(16) },
			Now:      store.Now,
		}
	}}
	server, err := providerserver.NewProtocol6WithError(p)()
	must(err)
	schemas, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	must(err)
	must(configure(t.Context(), server, schemas))
	return server, schemas, engine, shared
}

// unknown is a value that is not known yet. nil is null.
type unknown struct{}

// valueOf builds a value from strings, numbers, booleans, []any, map[string]any, nil and unknown.
func valueOf(kind tftypes.Type, v any) tftypes.Value {
	element := func(name string) tftypes.Type {
		switch kind := kind.(type) {
		case tftypes.List:
			return kind.ElementType
		case tftypes.Set:
			return kind.ElementType
		case tftypes.Map:
			return kind.ElementType
		case tftypes.Object:
			return kind.AttributeTypes[name]
		default:
			panic(fmt.Sprintf("%s has no elements", kind))
		}
	}
	switch v := v.(type) {
	case unknown:
		return tftypes.NewValue(kind, tftypes.UnknownValue)
	case []any:
		elements := make([]tftypes.Value, len(v))
		for i := range v {
			elements[i] = valueOf(element(""), v[i])
		}
		return tftypes.NewValue(kind, elements)
	case map[string]any:
		elements := map[string]tftypes.Value{}
		if of, ok := kind.(tftypes.Object); ok {
			for name, kind := range of.AttributeTypes {
				elements[name] = tftypes.NewValue(kind, nil)
			}
		}
		for name := range v {
			elements[name] = valueOf(element(name), v[name])
		}
		return tftypes.NewValue(kind, elements)
	default:
		return tftypes.NewValue(kind, v)
	}
}

func dynamic(b *tfprotov6.SchemaBlock, v map[string]any) *tfprotov6.DynamicValue {
	d, err := tfprotov6.NewDynamicValue(b.ValueType(), valueOf(b.ValueType(), v))
	if err != nil {
		panic(err) // the test built a value of another type
	}
	return &d
}

// sound maps an attribute's place in its schema to values that it accepts. An attribute without values is null.
type sound map[string][]any

// draw returns a configuration of sound values: everything required, and some of the rest.
func (s sound) draw(t *rapid.T, attributes []*tfprotov6.SchemaAttribute, at string) map[string]any {
	values := map[string]any{}
	for _, a := range attributes {
		here := at + a.Name
		if !a.Required && (!a.Optional || !rapid.Bool().Draw(t, here+" is set")) {
			continue
		}
		if v := s.one(t, a, here); v != nil {
			values[a.Name] = v
		}
	}
	return values
}

func (s sound) one(t *rapid.T, a *tfprotov6.SchemaAttribute, here string) any {
	if n := a.NestedType; n != nil {
		return nested(n, s.draw(t, n.Attributes, here+"."))
	}
	if len(s[here]) == 0 {
		return nil
	}
	return rapid.SampledFrom(s[here]).Draw(t, here)
}

// nested returns one object as the value of a nested attribute, under the key "one" in a map.
func nested(n *tfprotov6.SchemaObject, one map[string]any) any {
	switch n.Nesting {
	case tfprotov6.SchemaObjectNestingModeList:
		return []any{one}
	case tfprotov6.SchemaObjectNestingModeMap:
		return map[string]any{"one": one}
	default:
		return one
	}
}

// fractions are edge values of numbers that need not be whole.
var fractions = []any{0, -1, 1, 1e300, 0.0001, 1.0004, unknown{}, nil}

// oddAt are the edge values of places for which the type's are too few, or need what the test does not have.
var oddAt = map[string][]any{
	"resources.cpus": fractions, "companions.resources.cpus": fractions, "expected_usage.hours_per_day": fractions,
	"instance":         {"", unknown{}, nil},            // only the backend knows the others
	"environment_id":   {"", "No Name", unknown{}},      // only the ledger knows the others
	"source.reference": {"", " ", "No Name", unknown{}}, // only a registry on the Internet knows the others
}

// odd returns the edge values of an attribute, without those that Terraform itself refuses.
func odd(a *tfprotov6.SchemaAttribute, here string, was any) []any {
	all := oddAt[here]
	if all != nil {
		return all
	}
	switch {
	case a.NestedType != nil:
		switch a.NestedType.Nesting {
		case tfprotov6.SchemaObjectNestingModeSingle:
			all = []any{unknown{}}
		case tfprotov6.SchemaObjectNestingModeMap:
			all = []any{map[string]any{}, map[string]any{"a": nil}, unknown{}, map[string]any{"a": unknown{}}}
		default:
			all = []any{[]any{}, []any{nil}, unknown{}, []any{unknown{}}}
			if one, ok := was.([]any); ok && len(one) == 1 {
				all = append(all, []any{one[0], one[0]})
			}
		}
	case a.Type.Is(tftypes.String):
		// No duration is so short that a lease ends during the test.
		all = []any{"", " ", "0s", "-1s", "0.5s", "1h", "2562047h", "0", "0.0001", strings.Repeat("x", 70_000), unknown{}}
	case a.Type.Is(tftypes.Number):
		all = []any{0, -1, 1, int64(1) << 62, unknown{}} // the framework refuses fractions of whole numbers
	case a.Type.Is(tftypes.Bool):
		all = []any{false, true, unknown{}}
	case a.Type.Is(tftypes.Map{}):
		all = []any{
			map[string]any{}, map[string]any{"A": nil}, map[string]any{"A": ""}, map[string]any{"": "a"}, unknown{},
			map[string]any{"A": unknown{}}, map[string]any{"A": strings.Repeat("x", 70_000)},
		}
	case a.Type.Is(tftypes.Set{}):
		all = []any{[]any{}, []any{nil}, []any{""}, unknown{}, []any{unknown{}}, []any{"a.b", unknown{}}}
	default:
		all = []any{[]any{}, []any{nil}, []any{""}, []any{"a", "a"}, unknown{}, []any{unknown{}}, []any{"a", unknown{}}}
	}
	if !a.Required {
		all = append(all, nil)
	}
	return all
}

// spoil changes one attribute, at any depth, to an odd value, and returns its place.
func spoil(t *rapid.T, attributes []*tfprotov6.SchemaAttribute, values map[string]any, at string) string {
	a := rapid.SampledFrom(slices.DeleteFunc(slices.Clone(attributes),
		func(a *tfprotov6.SchemaAttribute) bool { return !a.Required && !a.Optional })).Draw(t, "the odd one")
	here := at + a.Name
	var inside map[string]any
	switch v := values[a.Name].(type) {
	case map[string]any:
		if inside = v; a.NestedType != nil && a.NestedType.Nesting == tfprotov6.SchemaObjectNestingModeMap {
			inside, _ = v["one"].(map[string]any)
		}
	case []any:
		inside, _ = v[0].(map[string]any)
	}
	if a.NestedType != nil && inside != nil && rapid.IntRange(0, 3).Draw(t, "inside") > 0 {
		return spoil(t, a.NestedType.Attributes, inside, here+".")
	}
	values[a.Name] = rapid.SampledFrom(odd(a, here, values[a.Name])).Draw(t, here)
	return here
}

// resolve replaces unknown values with their outcome: a sound value, or null.
func (s sound) resolve(t *rapid.T, attributes []*tfprotov6.SchemaAttribute, values map[string]any,
	at string) map[string]any {
	known := map[string]any{}
	for _, a := range attributes {
		here := at + a.Name
		v, set := values[a.Name]
		if !set {
			continue
		}
		if _, is := v.(unknown); is {
			if v = s.one(t, a, here); !a.Required && rapid.Bool().Draw(t, here+" is null after all") {
				v = nil
			}
		}
		known[a.Name] = s.within(t, a, v, here)
	}
	return known
}

// within resolves the elements of a known value.
func (s sound) within(t *rapid.T, a *tfprotov6.SchemaAttribute, v any, here string) any {
	one := func(v any) any {
		_, is := v.(unknown)
		switch object, ok := v.(map[string]any); {
		case is && a.NestedType != nil:
			return s.draw(t, a.NestedType.Attributes, here+".")
		case is:
			return rapid.SampledFrom([]any{"resolved.text", "", nil}).Draw(t, here+" turns out")
		case ok && a.NestedType != nil:
			return s.resolve(t, a.NestedType.Attributes, object, here+".")
		default:
			return v
		}
	}
	switch v := v.(type) {
	case []any:
		known := make([]any, len(v))
		for i := range v {
			known[i] = one(v[i])
		}
		return known
	case map[string]any:
		if a.NestedType != nil && a.NestedType.Nesting == tfprotov6.SchemaObjectNestingModeSingle {
			return one(v)
		}
		known := map[string]any{}
		for key := range v {
			known[key] = one(v[key])
		}
		return known
	default:
		return v
	}
}

// count counts the cases of a property.
type count struct{ cases, refused, applied int }

// apply applies one configuration, which is partly known at first, to the object's current state. It returns the
// provider's refusal.
func (n *count) apply(ctx context.Context, c *core, early, known map[string]any) (r refusal, _ error) {
	n.cases++
	kind := c.block.ValueType()
	config := valueOf(kind, known)
	if err := c.change(ctx, valueOf(kind, early), config); err != nil {
		n.refused++
		return r, followed(err, &r)
	}
	n.applied++
	return nil, c.settled(ctx, config)
}

// followed extracts the refusal from an error. It fails if there is none, or if a user cannot act on it.
func followed(err error, r *refusal) error {
	if !errors.As(err, r) {
		return err
	}
	for _, d := range *r {
		if d.Severity == tfprotov6.DiagnosticSeverityError &&
			(d.Attribute == nil || strings.Contains(d.Summary, "Conversion Error")) {
			return fmt.Errorf("it says, at %v: %s: %s", d.Attribute, d.Summary, d.Detail)
		}
	}
	return nil
}

func soundEnvironment(dir string) sound {
	return sound{
		"name": {"game"}, "type": {"rpg", "custom"}, "backend": {"docker"}, "image": {"player"},
		"instance_type": {"lite", "standard-1"}, "force_destroy": {true}, "epoch": {0},
		"labels": {map[string]any{"A": "b"}}, "max_monthly_cost_usd": {"100000000"}, "secrets.value_wo": {"hidden"},
		"secrets.value_wo_version": {1, 2}, "env": {map[string]any{"SEASON": "3"}}, "env_passthrough": {[]any{"HOME"}},
		"env_blocked": {[]any{"HOUSE"}}, "builtin_tools": {[]any{"git", "python"}}, "initial_state": {map[string]any{"a.txt": "a"}},
		"skills": {map[string]any{"trade": "sell"}}, "ttl": {"2h", "24h0m0s"}, "max_lifetime": {"48h"},
		"sleep_after": {"0s", "9m"}, "post_mortem": {"0s", "10m"}, "command_timeout": {"1s", "30m"}, "sleep_mode": {"stop", "pause"}, "keep_disk": {false, true}, "image_pull": {"never", "missing"},
		"expiry_conditions": {[]any{"game.finished", "task.complete"}}, "instance": {"engine"},
		"resources.memory_mb": {1024}, "resources.cpus": {0.5, 1.5}, "resources.pids_limit": {64},
		"resources.disk_mb": {2048}, "network.mode": {"restricted"},
		"network.allow":         {[]any{"a.example.com", "one", "b.example.com:8443"}},
		"network.private_cidrs": {[]any{"10.0.0.0/8"}}, "network.credentials.secret": {"one"},
		"network.credentials.header": {"Authorization", "Private-Token"}, "network.credentials.scheme": {"basic"},
		"network.credentials.username": {"x-access-token"},
		"network.authorities":          {authority()}, "warm_pool.size": {0, 2}, "warm_pool.max_size": {6},
		"warm_pool.mode": {"running", "paused"}, "warm_pool.ttl": {"90m"}, "warm_pool.paused": {true},
		"budget.monthly_usd": {"25", "25.00"}, "mount.source": {dir}, "mount.target": {"/maps"}, "mount.writable": {true},
		"archive.url": {"https://bucket.example.com/app.tar.gz"}, "archive.sha256": {strings.Repeat("a", 64)},
		"archive.target": {"/workspace", "/workspace/app"}, "archive.credential_secret": {"one"},
		"archive.credential_header": {"Authorization", "X-Key"},
		"copy.source":               {dir}, "copy.target": {"/workspace/maps"}, "state.scope": {"agent"},
		"state.checkpoint_every": {"0s", "1m"}, "state.on_persist_failure": {"discard"}, "state.retry_for": {"1h"},
		"state.size_limit_mb": {8}, "confinement.user": {"1000", "1000:1001"}, "confinement.allow_root": {true},
		"confinement.runtime": {"runsc"}, "confinement.seccomp_profile": {`{"defaultAction": "SCMP_ACT_ERRNO"}`},
		"confinement.tmp_mb": {64}, "confinement.run_mb": {8}, "confinement.open_files": {1024},
		"confinement.disk_limit": {"billed", "enforced"}, "post_start.command": {[]any{"true"}},
		"post_start.env": {map[string]any{"A": "b"}}, "post_start.user": {"1000"}, "post_start.timeout": {"30s"},
		"process.name": {"server"}, "process.command": {[]any{"serve", ""}}, "process.env": {map[string]any{"A": "b"}},
		"process.cwd": {"/data"}, "process.user": {"1000"}, "process.restart": {"always", "no"},
		"process.endpoint.port": {1, 8080}, "process.endpoint.description": {"Talks."},
		"companions.image": {"postgres:17"}, "companions.command": {[]any{"serve", ""}},
		"companions.env": {map[string]any{"A": "b"}}, "companions.secrets": {[]any{"one"}},
		"companions.restart": {"never", "on_failure"}, "companions.resources.memory_mb": {64, 512},
		"companions.resources.cpus": {0.05, 0.5}, "companions.resources.pids_limit": {32, 256},
		"companions.resources.disk_mb": {1024, 2048}, "companions.health_check.command": {[]any{"true"}},
		"companions.health_check.port": {1, 8080}, "companions.health_check.path": {"/ready"},
		"companions.health_check.interval": {"1s", "100ms"}, "companions.health_check.timeout": {"5s"},
		"companions.health_check.start_period": {"1m", "90s"},
		"llm.api":                              {"openai", "anthropic"}, "llm.upstream": {"https://model.example.com"}, "llm.credential": {"one"},
		"llm.price_source": {"the price list"}, "llm.prices_as_of": {"2026-11-24"},
		"llm.models.input_usd_per_million": {"0.25", "1.00"}, "llm.models.cached_input_usd_per_million": {"0.025", "0.25"},
		"llm.models.cache_write_usd_per_million": {"0.5"}, "llm.models.output_usd_per_million": {"2"},
		"llm.models.max_input_tokens": {1000}, "llm.models.max_output_tokens": {100},
		"llm.lease_limits.usd": {"1.50"}, "llm.lease_limits.requests": {10}, "llm.lease_limits.tokens": {1000},
		"llm.monthly_limits.usd": {"15"}, "llm.monthly_limits.requests": {100}, "llm.monthly_limits.tokens": {10000},
		"workspace.git.url": {"https://git.example.com/team/app.git"}, "workspace.git.ref": {"main", "v1.0"},
		"workspace.git.depth": {0, 1}, "workspace.git.known_hosts": {"git.example.com ssh-ed25519 AAAA"},
		"workspace.git.submodules": {true}, "workspace.git.credential_secret": {"one"},
		"workspace.git.username": {"x-access-token", "ann"}, "workspace.branch": {"agents/{agent}/{generation}"},
		"workspace.on_end": {"bundle", "discard"}, "workspace.push_prefix": {"agents/", "x-"}, "workspace.path": {"/workspace/app", "/workspace/code"},
		"expected_usage.leases": {8}, "expected_usage.hours_per_day": {4, 0.5}, "expected_usage.cpu_share_percent": {10},
		"expected_usage.commands_per_hour": {0, 30},
		"timeouts.create":                  {"15m"}, "timeouts.update": {"1h"}, "timeouts.delete": {"10m"},
	}
}

func soundLease() sound {
	return sound{
		"agent_did": {"did:plc:ann"}, "environment_id": {"leased"}, "ttl": {"2h"}, "sleep_after": {"0s", "9m"},
		"max_lifetime": {"48h"}, "expiry_conditions": {[]any{"game.finished"}}, "on_expiry": {"keep", "recreate"},
		"labels": {map[string]any{"A": "b"}}, "timeouts.create": {"5m"}, "timeouts.delete": {"5m"},
	}
}

// soundImage starts a registry that images are pulled from and pushed to.
func soundImage(t *testing.T) sound {
	t.Helper()
	host := registrytest.Start(t, registrytest.Options{}).Host
	img, err := random.Image(100, 1)
	must(t, err)
	index := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}},
	})
	base, err := name.ParseReference(host + "/base:latest")
	must(t, err)
	must(t, remote.WriteIndex(base, index))
	digest, err := index.Digest()
	must(t, err)
	dir := t.TempDir()
	for file, content := range map[string]string{
		"Dockerfile": "FROM scratch\n", "player/Dockerfile": "FROM scratch\nCOPY . /\n",
		".devcontainer/devcontainer.json": `{"image": "busybox", "postCreateCommand": "make"}`,
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
	}
	return sound{
		"name": {host + "/player"}, "tags": {[]any{"latest", "v1"}}, "push": {true, false},
		"on_destroy": {"keep", "untag", "delete"}, "keep_tags": {3, 1}, "build.context": {dir},
		"build.dockerfile": {"player/Dockerfile"}, "build.dockerfile_inline": {"FROM scratch\nRUN true\n"},
		"build.devcontainer": {".devcontainer/devcontainer.json"}, "build.args": {map[string]any{"A": "b"}},
		"build.target": {"base"}, "build.platform": {"linux/amd64"}, "build.labels": {map[string]any{"a": "b"}},
		"build.no_cache": {true, false}, "build.cache_from": {[]any{"player:latest"}},
		"build.builder": {"buildkit", "classic"}, "build.secrets.value_wo": {"hidden"},
		"source.reference": {base.String(), host + "/base@" + digest.String()}, "source.platform": {"linux/amd64"},
		"source.follow": {true, false}, "registry_auth.address": {"registry.test", host},
		"registry_auth.username": {"ann"}, "registry_auth.password_wo": {"hidden"},
		"registry_auth.password_wo_version": {1, 2}, "registry_auth.ca_certificate": {authority()},
		"timeouts.create": {"20m"}, "timeouts.update": {"20m"}, "timeouts.delete": {"5m"},
	}
}

// authority returns a PEM certificate.
func authority() string {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// leasedInMemory is newInMemory with an environment for leases.
func leasedInMemory(t *testing.T) (_ tfprotov6.ProviderServer, _ *tfprotov6.GetProviderSchemaResponse,
	directory string) {
	t.Helper()
	server, schemas, engine, dir := newInMemory(t)
	_, err := engine.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID: "leased", Owner: "test", EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player"},
	})
	must(t, err)
	return server, schemas, dir
}

// Whatever value an attribute has, the provider refuses the configuration with the attribute's name before anything is
// done, or it applies it as planned and the next plan changes nothing.
func TestWhatIsAcceptedIsAppliedAsPlanned(t *testing.T) {
	t.Parallel()
	server, schemas, dir := leasedInMemory(t)
	for kind, values := range map[string]sound{
		"sandbox_environment": soundEnvironment(dir), "sandbox_lease": soundLease(), "sandbox_container_image": soundImage(t),
	} {
		var n count
		rapid.Check(t, func(rt *rapid.T) {
			c := newCore(server, schemas, kind)
			defer func() {
				if err := c.destroy(context.Background()); err != nil {
					rt.Fatalf("destroy: %v", err)
				}
			}()
			for range 3 { // created, then changed
				n.add(rt, t.Context(), c, values)
			}
		})
		t.Logf("%s: %d cases, %d refused, %d applied", kind, n.cases, n.refused, n.applied)
		if n.refused == 0 || n.applied == 0 {
			t.Errorf("the cases of %s are all of one kind", kind)
		}
	}
}

// repairCredentials makes a network consistent with its credentials: they need a secret, an allowed host, and a user
// for one scheme. Authorities need credentials.
func repairCredentials(network map[string]any, hasSecrets bool) {
	if !hasSecrets || network["allow"] == nil {
		delete(network, "credentials")
	}
	all, ok := network["credentials"].(map[string]any)
	if !ok {
		delete(network, "authorities")
		return
	}
	one, ok := all["one"].(map[string]any)
	switch {
	case !ok:
	case one["scheme"] == nil:
		delete(one, "username")
	case one["username"] == nil:
		delete(one, "scheme")
	}
}

// repairWorkspace removes settings that need a missing one.
func repairWorkspace(early map[string]any) {
	workspace, _ := early["workspace"].(map[string]any)
	git, _ := workspace["git"].(map[string]any)
	if early["secrets"] == nil {
		delete(git, "credential_secret") // it names a secret
	}
	if git["credential_secret"] == nil {
		delete(git, "username")
	}
}

// repairImage removes settings that exclude each other or need a missing one.
func repairImage(early map[string]any, values sound) {
	build, _ := early["build"].(map[string]any)
	switch {
	case build == nil && early["source"] == nil:
		early["source"] = map[string]any{"reference": values["source.reference"][0]}
	case build != nil:
		delete(early, "source")
	}
	switch {
	case build["devcontainer"] != nil:
		delete(build, "dockerfile")
		delete(build, "dockerfile_inline")
		delete(build, "target")
	case build["dockerfile_inline"] != nil:
		delete(build, "dockerfile")
	}
	if build["builder"] == "classic" {
		delete(build, "secrets")
	}
	if early["push"] != true {
		delete(early, "keep_tags")
	}
	auths, _ := early["registry_auth"].([]any)
	for _, auth := range auths {
		if auth, ok := auth.(map[string]any); ok && (auth["username"] == nil || auth["password_wo"] == nil) {
			delete(auth, "username")
			delete(auth, "password_wo")
		}
	}
}

// consistent draws a configuration of an object, without settings that exclude each other or need a missing one.
func (s sound) consistent(t *rapid.T, c *core) map[string]any {
	early := s.draw(t, c.fields, "")
	if early["resources"] != nil {
		delete(early, "instance_type") // they exclude each other
	}
	if early["expected_usage"] == nil {
		delete(early, "max_monthly_cost_usd") // it needs expected_usage
	}
	if early["secrets"] == nil {
		delete(early, "llm") // its key is a secret
	}
	repairWorkspace(early)
	if c.kind == "sandbox_container_image" {
		repairImage(early, s)
	}
	if network, ok := early["network"].(map[string]any); ok {
		repairCredentials(network, early["secrets"] != nil)
	}
	return early
}

// add applies one drawn configuration to the object's current state.
func (n *count) add(t *rapid.T, ctx context.Context, c *core, values sound) {
	early := values.consistent(t, c)
	place := spoil(t, c.fields, early, "")
	if place == "name" { // only the Internet knows other registries
		delete(early, "push")
		delete(early, "keep_tags")
	}
	known := values.resolve(t, c.fields, early, "")
	if _, err := n.apply(ctx, c, early, known); err != nil {
		t.Fatalf("with an odd %s: %v", place, err)
	}
}
