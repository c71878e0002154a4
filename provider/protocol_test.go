package provider_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	containerregistry "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// server is a provider that implements the newest protocol.
type server interface {
	tfprotov6.ProviderServer
	tfprotov6.ListResourceServer
	tfprotov6.ActionServer
}

// caller sends the provider the requests of newer CLIs.
type caller struct {
	testing.TB
	server
	schemas *tfprotov6.GetProviderSchemaResponse
}

func call(t *testing.T, ledgerURL string) *caller {
	t.Helper()
	p := provider.New("test")()
	t.Cleanup(func() {
		if err := p.(io.Closer).Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	newest, err := providerserver.NewProtocol6WithError(p)()
	c := &caller{TB: t, server: newest.(server)}
	c.must(err, nil)
	c.schemas, err = c.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	c.must(err, c.schemas.Diagnostics)
	configured, err := c.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{
		Config: c.config(c.schemas.Provider.Block, map[string]string{"ledger": ledgerURL}),
	})
	c.must(err, configured.Diagnostics)
	return c
}

func (c *caller) must(err error, diags []*tfprotov6.Diagnostic) {
	c.Helper()
	if said := text(diags); err != nil || said != "" {
		c.Fatal(err, said)
	}
}

func text(diags []*tfprotov6.Diagnostic) string {
	var said []string
	for _, d := range diags {
		said = append(said, fmt.Sprintf("%s: %s: %s", d.Severity, d.Summary, d.Detail))
	}
	return strings.Join(said, "\n")
}

// inLedger is the identity of environments and leases.
var inLedger = tftypes.Object{AttributeTypes: map[string]tftypes.Type{
	"id": tftypes.String, "ledger_id": tftypes.String,
}}

// importByIdentity imports an object by its id and, unless "", its ledger. It returns the identity that Terraform keeps
// once it has read the object, and the provider's messages.
func (c *caller) importByIdentity(kind, ledgerID, id string) (kept map[string]tftypes.Value, said string) {
	c.Helper()
	ledger := tftypes.NewValue(tftypes.String, nil)
	if ledgerID != "" {
		ledger = tftypes.NewValue(tftypes.String, ledgerID)
	}
	identity, err := tfprotov6.NewDynamicValue(inLedger, tftypes.NewValue(inLedger,
		map[string]tftypes.Value{"id": tftypes.NewValue(tftypes.String, id), "ledger_id": ledger}))
	c.must(err, nil)
	imported, err := c.ImportResourceState(c.Context(), &tfprotov6.ImportResourceStateRequest{
		TypeName: kind, Identity: &tfprotov6.ResourceIdentityData{IdentityData: &identity},
	})
	c.must(err, nil)
	if len(imported.ImportedResources) != 1 {
		return nil, text(imported.Diagnostics)
	}
	object := imported.ImportedResources[0]
	read, err := c.ReadResource(c.Context(), &tfprotov6.ReadResourceRequest{
		TypeName: kind, CurrentState: object.State, CurrentIdentity: object.Identity, Private: object.Private,
	})
	c.must(err, read.Diagnostics)
	return c.object(read.NewIdentity.IdentityData, inLedger), text(imported.Diagnostics)
}

// config returns a configuration with only these texts.
func (c *caller) config(b *tfprotov6.SchemaBlock, texts map[string]string) *tfprotov6.DynamicValue {
	c.Helper()
	kind := b.ValueType().(tftypes.Object)
	values := make(map[string]tftypes.Value, len(kind.AttributeTypes))
	for name, t := range kind.AttributeTypes {
		values[name] = tftypes.NewValue(t, nil)
		if s, ok := texts[name]; ok {
			values[name] = tftypes.NewValue(t, s)
		}
	}
	v, err := tfprotov6.NewDynamicValue(kind, tftypes.NewValue(kind, values))
	c.must(err, nil)
	return &v
}

// list returns the results of a list block: the ids in the identities, and the resources.
func (c *caller) list(kind string, limit int64,
	filter map[string]string) (ids []string, objects []map[string]tftypes.Value) {
	c.Helper()
	stream, err := c.ListResource(c.Context(), &tfprotov6.ListResourceRequest{
		TypeName:        kind,
		Config:          c.config(c.schemas.ListResourceSchemas[kind].Block, filter),
		IncludeResource: true,
		Limit:           limit,
	})
	c.must(err, nil)
	for result := range stream.Results {
		c.must(nil, result.Diagnostics)
		identity := c.object(result.Identity.IdentityData, inLedger)
		var id string
		c.must(identity["id"].As(&id), nil)
		if result.DisplayName != id {
			c.Errorf("%s is shown as %q", id, result.DisplayName)
		}
		ids = append(ids, id)
		objects = append(objects, c.object(result.Resource, c.schemas.ResourceSchemas[kind].Block.ValueType()))
	}
	return ids, objects
}

func (c *caller) object(v *tfprotov6.DynamicValue, kind tftypes.Type) map[string]tftypes.Value {
	c.Helper()
	value, err := v.Unmarshal(kind)
	c.must(err, nil)
	var object map[string]tftypes.Value
	c.must(value.As(&object), nil)
	return object
}

// expire invokes the action and returns its messages.
func (c *caller) expire(texts map[string]string) string {
	c.Helper()
	config := c.config(c.schemas.ActionSchemas["sandbox_expire"].Schema.Block, texts)
	valid, err := c.ValidateActionConfig(c.Context(),
		&tfprotov6.ValidateActionConfigRequest{ActionType: "sandbox_expire", Config: config})
	if c.must(err, nil); len(valid.Diagnostics) > 0 {
		return text(valid.Diagnostics)
	}
	stream, err := c.InvokeAction(c.Context(),
		&tfprotov6.InvokeActionRequest{ActionType: "sandbox_expire", Config: config})
	c.must(err, nil)
	var said []string
	for e := range stream.Events {
		switch e := e.Type.(type) {
		case tfprotov6.ProgressInvokeActionEventType:
			said = append(said, e.Message)
		case tfprotov6.CompletedInvokeActionEventType:
			said = append(said, text(e.Diagnostics))
		}
	}
	return strings.Join(said, "\n")
}

// Environments and leases are listed with their identities, so that they can be imported. The action ends leases, and
// removes their sandboxes, as a game's condition does.
func TestAccListAndExpireAtTheProtocol(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	service := w.Service()
	_, err := service.PutEnvironment(t.Context(), sandbox.PutEnvironment{
		ID:    w.Name,
		Owner: "test",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeRPG, Image: w.Image, Network: sandbox.NetworkNone,
		},
	})
	w.Must(err)
	t.Cleanup(func() {
		w.Must(service.DeleteEnvironment(context.Background(), sandbox.DeleteEnvironment{ID: w.Name, Force: true}))
	})
	for _, agent := range []string{"did:plc:ann", "did:plc:bob"} {
		_, err := service.Acquire(t.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: w.Name, Owner: "test"})
		w.Must(err)
	}
	ann, bob := sandbox.LeaseID("did:plc:ann", w.Name), sandbox.LeaseID("did:plc:bob", w.Name)
	c := call(t, w.LedgerURL)

	listed := func(want []string, kind string, limit int64, filter map[string]string) []map[string]tftypes.Value {
		t.Helper()
		ids, objects := c.list(kind, limit, filter)
		if !slices.Equal(ids, want) {
			t.Fatalf("%s with %v lists %q, want %q", kind, filter, ids, want)
		}
		return objects
	}
	env := listed([]string{w.Name}, "sandbox_environment", 0, map[string]string{"type": "rpg"})[0]
	if !env["image"].Equal(tftypes.NewValue(tftypes.String, w.Image)) ||
		!env["owner"].Equal(tftypes.NewValue(tftypes.String, "test")) {
		t.Errorf("the environment is %v", env)
	}
	listed(nil, "sandbox_environment", 0, map[string]string{"type": "coding"})
	leases := listed([]string{ann, bob}, "sandbox_lease", 0, map[string]string{"environment_id": w.Name})
	if !leases[1]["agent_did"].Equal(tftypes.NewValue(tftypes.String, "did:plc:bob")) ||
		!leases[1]["status"].Equal(tftypes.NewValue(tftypes.String, "active")) {
		t.Errorf("bob's lease is %v", leases[1])
	}
	listed([]string{ann}, "sandbox_lease", 1, nil)

	var ledger string
	w.Must(env["ledger_id"].As(&ledger))
	for kind, id := range map[string]string{"sandbox_environment": w.Name, "sandbox_lease": ann} {
		for _, given := range []string{"", ledger} {
			kept, said := c.importByIdentity(kind, given, id)
			if said != "" || !kept["ledger_id"].Equal(env["ledger_id"]) {
				t.Errorf("%s imported with ledger %q keeps the identity %v: %s", id, given, kept, said)
			}
		}
		if _, said := c.importByIdentity(kind, "another", id); !strings.Contains(said, "provider reaches ledger "+ledger) {
			t.Errorf("%s imported from another ledger: %q", id, said)
		}
	}

	for says, texts := range map[string]map[string]string{
		"agent_did is required for agent.death": {"environment_id": w.Name, "condition": "agent.death"},
		"condition must be a dotted name":       {"environment_id": w.Name, "condition": "death"},
		"agent_did must not be empty":           {"environment_id": w.Name, "condition": "game.over", "agent_did": ""},
		"environment_id must be 1 to 63":        {"environment_id": "Catan 7", "condition": "game.finished"},
		"Condition game.paused Ended Nothing: Condition game.paused is recorded as unmatched: environment " +
			w.Name + " has no live lease that ends on it.": {"environment_id": w.Name, "condition": "game.paused"},
		"1 leases ended by agent.death": {
			"environment_id": w.Name,
			"condition":      "agent.death",
			"agent_did":      "did:plc:bob",
			"reason":         "fell",
		},
		"Condition agent.death Ended Nothing: Condition agent.death is recorded as unmatched: " +
			"environment no-such-game does not exist.": {
			"environment_id": "no-such-game",
			"condition":      "agent.death",
			"agent_did":      "did:plc:bob",
		},
	} {
		if got := c.expire(texts); !strings.Contains(got, says) {
			t.Errorf("with %v it says %q, want %q", texts, got, says)
		}
	}
	l, err := service.GetLease(t.Context(), bob)
	w.Must(err)
	if l.Status != sandbox.LeaseDestroyed || l.EndedBy != sandbox.EndedByCondition ||
		!strings.Contains(l.EndReason, "fell") {
		t.Errorf("bob's lease is %+v", l)
	}
	if left := w.Containers(w.Name); len(left) != 1 {
		t.Errorf("the containers are %v, want ann's", left)
	}
	listed([]string{ann}, "sandbox_lease", 0, nil)

	w.Condition(service, "game.finished", w.Name, "")
	for _, condition := range []string{"game.finished", "game.over"} { // a second time, and after the end
		got := c.expire(map[string]string{"environment_id": w.Name, "condition": condition})
		if want := "is recorded as unmatched: environment " + w.Name + " ended by game.finished at "; !strings.Contains(got, want) ||
			!strings.Contains(got, " and has no live lease that ends on the condition.") {
			t.Errorf("%s after the end says %q, want %q", condition, got, want)
		}
	}
}

// A docker_image of the Docker provider is taken over by name and tag. A name without a tag is refused.
func TestAccADockerImageIsMoved(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	name := w.Name + "-moved"
	w.Must(w.Docker.ImageTag(t.Context(), w.Image, name+":v1"))
	t.Cleanup(func() {
		_, err := w.Docker.ImageRemove(context.Background(), name+":v1", dockerapi.ImageRemoveOptions{})
		w.Must(err)
	})
	c := call(t, w.LedgerURL)
	const kind = "sandbox_container_image"
	move := func(from, provider, state string) (*tfprotov6.MoveResourceStateResponse, string) {
		t.Helper()
		moved, err := c.MoveResourceState(t.Context(), &tfprotov6.MoveResourceStateRequest{
			SourceProviderAddress: provider, SourceTypeName: from, SourceState: &tfprotov6.RawState{JSON: []byte(state)},
			TargetTypeName: kind,
		})
		c.must(err, nil)
		return moved, text(moved.Diagnostics)
	}
	const docker = "registry.terraform.io/kreuzwerker/docker"
	moved, said := move("docker_image", docker, `{"name":"`+name+`:v1","keep_locally":true,"build":[{"context":"."}]}`)
	if said != "" {
		t.Fatalf("the move says %s", said)
	}
	read, err := c.ReadResource(t.Context(), &tfprotov6.ReadResourceRequest{
		TypeName: kind, CurrentState: moved.TargetState, CurrentIdentity: moved.TargetIdentity, Private: moved.TargetPrivate,
	})
	c.must(err, read.Diagnostics)
	img := c.object(read.NewState, c.schemas.ResourceSchemas[kind].Block.ValueType())
	for attribute, want := range map[string]string{"name": name, "on_destroy": "keep"} {
		if !img[attribute].Equal(tftypes.NewValue(tftypes.String, want)) {
			t.Errorf("the image has %s = %v, want %s", attribute, img[attribute], want)
		}
	}
	if img["image_id"].IsNull() {
		t.Errorf("the image was not found: %v", img)
	}
	for says, refused := range map[string][3]string{
		"contains a digest":   {"docker_image", docker, `{"name":"busybox@sha256:` + strings.Repeat("0", 64) + `"}`},
		"Unable to Move":      {"docker_registry_image", docker, `{"name":"busybox"}`},
		"Unable to Move Reso": {"docker_image", "registry.terraform.io/someone/docker", `{"name":"busybox"}`},
	} {
		if _, said := move(refused[0], refused[1], refused[2]); !strings.Contains(said, says) {
			t.Errorf("the move of %v says %q, want %q", refused, said, says)
		}
	}
}

// A docker_image that was pulled stays in its registry when it is destroyed after its move.
func TestAccAPulledDockerImageIsMoved(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	hub := httptest.NewServer(containerregistry.New(containerregistry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(hub.Close)
	name, client := strings.TrimPrefix(hub.URL, "http://")+"/"+w.Name, registry.New(nil)
	img, err := random.Image(100, 1)
	w.Must(err)
	w.Must(client.Push(t.Context(), name+":v1", img))
	_, err = image.NewBuilder(func() (image.Engine, error) { return w.Docker, nil }).Pull(t.Context(), name+":v1", "")
	w.Must(err)

	c := call(t, w.LedgerURL)
	const kind = "sandbox_container_image"
	moved, err := c.MoveResourceState(t.Context(), &tfprotov6.MoveResourceStateRequest{
		SourceProviderAddress: "registry.terraform.io/kreuzwerker/docker", SourceTypeName: "docker_image",
		SourceState:    &tfprotov6.RawState{JSON: []byte(`{"name":"` + name + `:v1","keep_locally":false}`)},
		TargetTypeName: kind,
	})
	c.must(err, moved.Diagnostics)
	read, err := c.ReadResource(t.Context(), &tfprotov6.ReadResourceRequest{
		TypeName: kind, CurrentState: moved.TargetState, CurrentIdentity: moved.TargetIdentity, Private: moved.TargetPrivate,
	})
	c.must(err, read.Diagnostics)
	schema := c.schemas.ResourceSchemas[kind].Block
	object := c.object(read.NewState, schema.ValueType())
	if !object["push"].Equal(tftypes.NewValue(tftypes.Bool, false)) {
		t.Errorf("the image has push = %v, want false", object["push"])
	}
	none, err := tfprotov6.NewDynamicValue(schema.ValueType(), tftypes.NewValue(schema.ValueType(), nil))
	c.must(err, nil)
	destroyed, err := c.ApplyResourceChange(t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: kind, PriorState: read.NewState, PlannedState: &none, Config: &none,
		PlannedPrivate: read.Private, PlannedIdentity: read.NewIdentity,
	})
	c.must(err, destroyed.Diagnostics)
	if _, err := w.Docker.ImageInspect(t.Context(), name+":v1"); err == nil {
		t.Errorf("the engine still has the image")
	}
	if _, err := client.Digest(t.Context(), name+":v1", ""); err != nil {
		t.Errorf("the registry no longer has the tag: %v", err)
	}
}
