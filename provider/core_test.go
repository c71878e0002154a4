package provider_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// core sends a provider the requests of Terraform's core about one object, and checks the answers as core does. Errors
// are a plan that does not follow from the configuration, an inconsistent final plan, and an inconsistent result.
type core struct {
	server  tfprotov6.ProviderServer
	schemas *tfprotov6.GetProviderSchemaResponse
	kind    string
	block   *tfprotov6.SchemaBlock
	fields  []*tfprotov6.SchemaAttribute
	// state is null before the object is created and after it is destroyed.
	state   tftypes.Value
	private []byte
	// hasty plans only once if the first plan knows everything.
	hasty bool
}

func newCore(server tfprotov6.ProviderServer, schemas *tfprotov6.GetProviderSchemaResponse, kind string) *core {
	block := schemas.ResourceSchemas[kind].Block
	return &core{
		server: server, schemas: schemas, kind: kind, block: block, fields: fields(block),
		state: tftypes.NewValue(block.ValueType(), nil),
	}
}

// fields returns the attributes of a block. A nested block is like a nested attribute.
func fields(b *tfprotov6.SchemaBlock) []*tfprotov6.SchemaAttribute {
	all := slices.Clone(b.Attributes)
	for _, n := range b.BlockTypes {
		if n.Nesting != tfprotov6.SchemaNestedBlockNestingModeSingle {
			panic(fmt.Sprintf("no block of ours nests by %v", n.Nesting))
		}
		all = append(all, &tfprotov6.SchemaAttribute{Name: n.TypeName, Optional: true, NestedType: &tfprotov6.SchemaObject{
			Nesting: tfprotov6.SchemaObjectNestingModeSingle, Attributes: fields(n.Block),
		}})
	}
	return all
}

// configure configures the provider without any settings, as Terraform does before it refreshes and before it applies.
func configure(ctx context.Context, server tfprotov6.ProviderServer,
	schemas *tfprotov6.GetProviderSchemaResponse) error {
	configured, err := server.ConfigureProvider(ctx, &tfprotov6.ConfigureProviderRequest{
		Config: dynamic(schemas.Provider.Block, map[string]any{}),
	})
	if err != nil {
		return err
	}
	return refused(configured.Diagnostics)
}

// refusal has the diagnostics about a configuration that the provider does not accept.
type refusal []*tfprotov6.Diagnostic

func (r refusal) Error() string { return text(r) }

func refused(diags []*tfprotov6.Diagnostic) error {
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			return refusal(diags)
		}
	}
	return nil
}

func (c *core) dynamic(v tftypes.Value) *tfprotov6.DynamicValue {
	d, err := tfprotov6.NewDynamicValue(c.block.ValueType(), v)
	if err != nil {
		panic(err) // the test built a value of another type
	}
	return &d
}

func (c *core) value(d *tfprotov6.DynamicValue) (tftypes.Value, error) {
	return d.Unmarshal(c.block.ValueType())
}

func (c *core) validate(ctx context.Context, config tftypes.Value) error {
	resp, err := c.server.ValidateResourceConfig(ctx,
		&tfprotov6.ValidateResourceConfigRequest{
			TypeName: c.kind, Config: c.dynamic(config),
			ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
		})
	if err != nil {
		return err
	}
	return refused(resp.Diagnostics)
}

// plan plans from a state. A refusal is a valid answer; every other error is a defect.
func (c *core) plan(ctx context.Context, prior, config tftypes.Value) (planned tftypes.Value, private []byte,
	replace bool, err error) {
	if err := c.validate(ctx, config); err != nil {
		return planned, nil, false, err
	}
	resp, err := c.server.PlanResourceChange(ctx, &tfprotov6.PlanResourceChangeRequest{
		TypeName: c.kind, PriorState: c.dynamic(prior), Config: c.dynamic(config), PriorPrivate: c.private,
		ProposedNewState: c.dynamic(proposed(c.block, prior, config)),
	})
	if err != nil {
		return planned, nil, false, err
	}
	if err := refused(resp.Diagnostics); err != nil {
		return planned, nil, false, err
	}
	if planned, err = c.value(resp.PlannedState); err != nil {
		return planned, nil, false, err
	}
	return planned, resp.PlannedPrivate, len(resp.RequiresReplace) > 0,
		follows(c.fields, "", object(prior), object(config), object(planned))
}

// change plans a partly known configuration, plans again when all of it is known, and applies it.
func (c *core) change(ctx context.Context, early, config tftypes.Value) error {
	first, private, replace, err := c.plan(ctx, c.state, early)
	if err != nil {
		return err
	}
	planned := first
	if !c.hasty || !early.Equal(config) {
		if planned, private, replace, err = c.plan(ctx, c.state, config); err != nil {
			return err
		}
	}
	if err := compatible("", first, planned); err != nil {
		return fmt.Errorf("provider produced inconsistent final plan: %w", err)
	}
	if replace && !c.state.IsNull() {
		if err := c.destroy(ctx); err != nil {
			return err
		}
		if planned, private, _, err = c.plan(ctx, c.state, config); err != nil {
			return err
		}
	}
	return c.apply(ctx, planned, config, private)
}

func (c *core) apply(ctx context.Context, planned, config tftypes.Value, private []byte) error {
	if err := configure(ctx, c.server, c.schemas); err != nil {
		return err
	}
	resp, err := c.server.ApplyResourceChange(ctx, &tfprotov6.ApplyResourceChangeRequest{
		TypeName: c.kind, PriorState: c.dynamic(c.state), PlannedState: c.dynamic(planned), Config: c.dynamic(config),
		PlannedPrivate: private,
	})
	if err != nil {
		return err
	}
	state, err := c.value(resp.NewState)
	if err != nil {
		return err
	}
	c.state, c.private = state, resp.Private
	if err := refused(resp.Diagnostics); err != nil {
		return errors.New("apply: " + err.Error()) // at this point, a refusal is too late
	}
	if err := compatible("", planned, state); err != nil || !state.IsFullyKnown() {
		return fmt.Errorf("provider produced inconsistent result after apply: %w", err)
	}
	return nil
}

// refresh reads the object.
func (c *core) refresh(ctx context.Context) error {
	if err := configure(ctx, c.server, c.schemas); err != nil {
		return err
	}
	resp, err := c.server.ReadResource(ctx,
		&tfprotov6.ReadResourceRequest{TypeName: c.kind, CurrentState: c.dynamic(c.state), Private: c.private})
	if err != nil {
		return err
	}
	if err := refused(resp.Diagnostics); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if c.state, err = c.value(resp.NewState); err != nil {
		return err
	}
	c.private = resp.Private
	return nil
}

// settled refreshes the state and plans the same configuration again. This plan must change nothing.
func (c *core) settled(ctx context.Context, config tftypes.Value) error {
	if err := c.refresh(ctx); err != nil {
		return err
	}
	planned, _, _, err := c.plan(ctx, c.state, config)
	if err != nil {
		return fmt.Errorf("the second plan: %w", err)
	}
	if !planned.Equal(c.state) {
		diff, _ := planned.Diff(c.state)
		return fmt.Errorf("the second plan has changes: %v", diff)
	}
	return nil
}

func (c *core) destroy(ctx context.Context) error {
	if c.state.IsNull() {
		return nil
	}
	none := tftypes.NewValue(c.block.ValueType(), nil)
	return c.apply(ctx, none, none, nil)
}

// object returns the attributes of an object, or none if it is null or unknown.
func object(v tftypes.Value) map[string]tftypes.Value {
	var attributes map[string]tftypes.Value
	if v.IsKnown() && !v.IsNull() {
		if err := v.As(&attributes); err != nil {
			panic(err) // v is no object
		}
	}
	return maps.Clone(attributes) // As shares v's own
}

// proposed returns the configuration, with prior values for what the configuration leaves to the provider.
func proposed(b *tfprotov6.SchemaBlock, prior, config tftypes.Value) tftypes.Value {
	all := object(config)
	merge(fields(b), object(prior), all)
	return tftypes.NewValue(b.ValueType(), all)
}

func merge(attributes []*tfprotov6.SchemaAttribute, prior, config map[string]tftypes.Value) {
	for _, a := range attributes {
		was, existed := prior[a.Name]
		is := config[a.Name]
		switch {
		case a.WriteOnly:
			config[a.Name] = tftypes.NewValue(a.ValueType(), nil)
		case a.NestedType != nil && is.IsKnown() && !is.IsNull():
			config[a.Name] = mergeNested(a.NestedType, was, is)
		case is.IsNull() && a.Computed && existed:
			config[a.Name] = was
		}
	}
}

func mergeNested(n *tfprotov6.SchemaObject, prior, config tftypes.Value) tftypes.Value {
	one := func(was, is tftypes.Value) tftypes.Value {
		if !is.IsKnown() || is.IsNull() {
			return is
		}
		all := object(is)
		merge(n.Attributes, object(was), all)
		return tftypes.NewValue(is.Type(), all)
	}
	switch n.Nesting {
	case tfprotov6.SchemaObjectNestingModeSingle:
		return one(prior, config)
	case tfprotov6.SchemaObjectNestingModeList:
		was, is := list(prior), list(config)
		for i := range is {
			var before tftypes.Value
			if i < len(was) {
				before = was[i]
			}
			is[i] = one(before, is[i])
		}
		return tftypes.NewValue(config.Type(), is)
	case tfprotov6.SchemaObjectNestingModeMap:
		was, is := object(prior), object(config)
		for key := range is {
			is[key] = one(was[key], is[key])
		}
		return tftypes.NewValue(config.Type(), is)
	default:
		panic(fmt.Sprintf("no attribute of ours nests by %v", n.Nesting))
	}
}

func list(v tftypes.Value) []tftypes.Value {
	var elements []tftypes.Value
	if v.IsKnown() && !v.IsNull() {
		if err := v.As(&elements); err != nil {
			panic(err) // v is no list
		}
	}
	return slices.Clone(elements)
}

// follows reports a planned value that is neither configured, nor a prior value, nor computed.
func follows(attributes []*tfprotov6.SchemaAttribute, at string,
	prior, config, planned map[string]tftypes.Value) error {
	for _, a := range attributes {
		here := at + "." + a.Name
		was, is, will := prior[a.Name], config[a.Name], planned[a.Name]
		switch {
		case a.WriteOnly:
			if !will.IsNull() {
				return fmt.Errorf("%s is write-only, and planned", here)
			}
		case a.NestedType != nil && a.NestedType.Nesting == tfprotov6.SchemaObjectNestingModeSingle &&
			is.IsKnown() && !is.IsNull():
			if err := follows(a.NestedType.Attributes, here, object(was), object(is), object(will)); err != nil {
				return err
			}
		case a.NestedType != nil && is.IsKnown() && !is.IsNull(): // lists and maps of objects: elements have defaults
		case is.IsNull() && a.Computed:
		case will.Equal(is):
		case will.Equal(was) && !is.IsNull():
		default:
			return fmt.Errorf("provider produced invalid plan: %s is configured as %s and planned as %s", here, is, will)
		}
	}
	return nil
}

// compatible reports known parts of a value that have changed.
func compatible(at string, before, after tftypes.Value) error {
	if !before.IsKnown() || before.Equal(after) {
		return nil
	}
	kind := before.Type()
	if before.IsNull() || after.IsNull() || !after.IsKnown() || before.IsFullyKnown() && kind.Is(tftypes.Set{}) {
		return fmt.Errorf("%s was %s, but now %s", at, before, after)
	}
	switch {
	case kind.Is(tftypes.Object{}), kind.Is(tftypes.Map{}):
		was, is := object(before), object(after)
		if len(was) != len(is) {
			return fmt.Errorf("%s had %d elements, but now %d", at, len(was), len(is))
		}
		for name := range was {
			if err := compatible(at+"."+name, was[name], is[name]); err != nil {
				return err
			}
		}
		return nil
	case kind.Is(tftypes.List{}):
		was, is := list(before), list(after)
		if len(was) != len(is) {
			return fmt.Errorf("%s had %d elements, but now %d", at, len(was), len(is))
		}
		for i := range was {
			if err := compatible(fmt.Sprintf("%s[%d]", at, i), was[i], is[i]); err != nil {
				return err
			}
		}
		return nil
	case kind.Is(tftypes.Set{}): // partly known: how the elements correspond is unknown
		return nil
	default:
		return fmt.Errorf("%s was %s, but now %s", at, before, after)
	}
}
