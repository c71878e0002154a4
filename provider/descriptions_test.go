package provider

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/defaults"
)

// A description says what its schema does: the default, the allowed values, the bounds, and whether a change replaces
// the object. If the configuration may omit the attribute, it says what then applies.
func TestDescriptionsSayWhatSchemasDo(t *testing.T) {
	t.Parallel()
	said := 0
	for name, s := range schemas(t) {
		walk(name, reflect.ValueOf(s), func(at string, of reflect.Value) {
			said++
			d := described{at: at, of: of}
			for _, missing := range d.missing(t.Context()) {
				t.Errorf("%s does not say %s:\n\t%s", at, missing, d.text())
			}
		})
	}
	if said < 300 {
		t.Errorf("only %d descriptions were read", said)
	}
}

// walk calls see for every attribute and block of a schema, a nested block or a nested attribute. The kinds of schema
// share no type, only the names of their fields.
func walk(at string, of reflect.Value, see func(at string, of reflect.Value)) {
	for _, name := range []string{"Attributes", "Blocks"} {
		members := of.FieldByName(name)
		if !members.IsValid() {
			continue
		}
		for _, key := range members.MapKeys() {
			member := members.MapIndex(key).Elem()
			place := at + "." + key.String()
			see(place, member)
			walk(place, member, see)
			if nested := member.FieldByName("NestedObject"); nested.IsValid() {
				walk(place, nested, see)
			}
		}
	}
}

// described is an attribute or a block.
type described struct {
	at string
	of reflect.Value
}

// describer is implemented by the framework's validators, plan modifiers and defaults.
type describer interface {
	Description(ctx context.Context) string
}

func (d described) text() string {
	of := d.of.Interface().(interface {
		GetDescription() string
		GetMarkdownDescription() string
	})
	if text := of.GetMarkdownDescription(); text != "" {
		return text
	}
	return of.GetDescription()
}

// is reports a setting of an attribute, such as Required. For a block it is false.
func (d described) is(setting string) bool {
	field := d.of.FieldByName(setting)
	return field.IsValid() && field.Bool()
}

// list returns the descriptions of the validators or the plan modifiers.
func (d described) list(field string) []string {
	var all []string
	if of := d.of.FieldByName(field); of.IsValid() {
		for i := range of.Len() {
			all = append(all, of.Index(i).Interface().(describer).Description(context.Background()))
		}
	}
	return all
}

var (
	choice = regexp.MustCompile(`value must be one of: \[(.*)\]`)
	quoted = regexp.MustCompile(`"([^"]+)"`)
	bound  = regexp.MustCompile(`must be (?:between|at least|at most) ([\d.]+)(?: and ([\d.]+))?`)
	// notEmpty needs no mention.
	notEmpty = regexp.MustCompile(`must (?:be|contain) at least 1\b`)
	// absent matches how a description says what applies without a value.
	absent = regexp.MustCompile(`Default: |[Rr]equired|must be given`)
)

// missing lists what the description should say but does not.
func (d described) missing(ctx context.Context) []string {
	text := d.text()
	var all []string
	want := func(said bool, format string, args ...any) {
		if !said {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	want(strings.HasSuffix(strings.TrimRight(text, "*"), "."), "anything in a sentence")
	if def, ok := d.defaultValue(ctx); ok {
		want(strings.Contains(text, "efault: `"+def+"`"), "its default %s", def)
	}
	if d.is("Optional") {
		want(absent.MatchString(text), "what holds without it")
	}
	for _, v := range d.list("Validators") {
		if of := choice.FindStringSubmatch(v); of != nil {
			for _, value := range quoted.FindAllStringSubmatch(of[1], -1) {
				want(strings.Contains(text, "`"+value[1]+"`"), "the allowed value %s", value[1])
			}
		}
		if of := bound.FindStringSubmatch(v); of != nil && !notEmpty.MatchString(v) {
			for _, figure := range of[1:] {
				want(strings.Contains(text, strings.TrimSuffix(figure, ".000000")), "the bound %s", figure)
			}
		}
	}
	replaces := false
	for _, m := range d.list("PlanModifiers") {
		replaces = replaces || strings.Contains(m, "destroy and recreate")
	}
	if replaces {
		want(strings.Contains(text, "**Changing it replaces the "), "that changing it replaces the object")
	} else {
		want(!strings.Contains(text, "**Changing it replaces the "), "the truth: nothing replaces the object")
	}
	return all
}

// defaultValue returns the default in the form of a configuration.
func (d described) defaultValue(ctx context.Context) (string, bool) {
	field := d.of.FieldByName("Default")
	if !field.IsValid() || field.IsNil() {
		return "", false
	}
	switch def := field.Interface().(type) {
	case defaults.String:
		var resp defaults.StringResponse
		def.DefaultString(ctx, defaults.StringRequest{Path: path.Empty()}, &resp)
		return resp.PlanValue.ValueString(), true
	case defaults.Bool:
		var resp defaults.BoolResponse
		def.DefaultBool(ctx, defaults.BoolRequest{}, &resp)
		return resp.PlanValue.String(), true
	case defaults.Int64:
		var resp defaults.Int64Response
		def.DefaultInt64(ctx, defaults.Int64Request{}, &resp)
		return resp.PlanValue.String(), true
	case defaults.Float64:
		var resp defaults.Float64Response
		def.DefaultFloat64(ctx, defaults.Float64Request{}, &resp)
		return fmt.Sprint(resp.PlanValue.ValueFloat64()), true
	case defaults.Set:
		var resp defaults.SetResponse
		def.DefaultSet(ctx, defaults.SetRequest{}, &resp)
		return resp.PlanValue.String(), true
	default:
		return fmt.Sprintf("of the kind %T, which this test does not know", def), true
	}
}
