package provider_test

import (
	"context"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// trial says how to try every place of a schema.
type trial struct {
	sound sound
	// needs maps a place to what it cannot be set without, or not without a specific value. nil means the first sound
	// value. The longest prefix of a place counts.
	needs map[string]map[string]any
}

// place is an attribute that a configuration may set, at any nesting depth.
type place struct {
	*tfprotov6.SchemaAttribute
	path string
}

func places(attributes []*tfprotov6.SchemaAttribute, at string) (all []place) {
	for _, a := range attributes {
		if !a.Required && !a.Optional {
			continue
		}
		all = append(all, place{a, at + a.Name})
		if a.NestedType != nil {
			all = append(all, places(a.NestedType.Attributes, at+a.Name+".")...)
		}
	}
	return all
}

// present has the places that a configuration sets besides the required ones, with their values. nil means the first
// sound value.
type present map[string]any

// around returns what a configuration with a place sets.
func (tr trial) around(at string) present {
	all, seen := present{}, map[string]bool{}
	var add func(at string)
	add = func(at string) {
		if seen[at] {
			return
		}
		seen[at] = true
		for to := at; to != ""; to = parent(to) {
			if _, ok := all[to]; !ok {
				all[to] = nil
			}
		}
		for other, v := range tr.beside(at) {
			if add(other); v != nil {
				all[other] = v
			}
		}
	}
	add(at)
	return all
}

// beside returns what a place needs.
func (tr trial) beside(at string) map[string]any {
	for to := at; ; to = parent(to) {
		if needs, ok := tr.needs[to]; ok || to == "" {
			return needs
		}
	}
}

func parent(at string) string {
	i := strings.LastIndexByte(at, '.')
	return at[:max(i, 0)]
}

// configuration returns sound values for what is present and for what is required.
func (tr trial) configuration(attributes []*tfprotov6.SchemaAttribute, at string, has present) map[string]any {
	values := map[string]any{}
	for _, a := range attributes {
		v, ok := has[at+a.Name]
		switch {
		case !a.Required && !ok:
		case v != nil:
			values[a.Name] = v
		default:
			if all := tr.values(a, at+a.Name, has); len(all) > 0 {
				values[a.Name] = all[0]
			}
		}
	}
	return values
}

// values returns the sound values of an attribute.
func (tr trial) values(a *tfprotov6.SchemaAttribute, here string, has present) []any {
	if a.NestedType == nil {
		return tr.sound[here]
	}
	return []any{nested(a.NestedType, tr.configuration(a.NestedType.Attributes, here+".", has))}
}

// put sets a place in a configuration that already has its parents.
func put(values map[string]any, at string, v any) {
	steps := strings.Split(at, ".")
	for _, step := range steps[:len(steps)-1] {
		inside := values[step]
		if all, ok := inside.([]any); ok {
			inside = all[0]
		}
		values, _ = inside.(map[string]any)
		if one, ok := values["one"].(map[string]any); ok {
			values = one
		}
	}
	values[steps[len(steps)-1]] = v
}

// outcomes returns the final values of a value: a sound value or null for an unknown one.
func (tr trial) outcomes(p place, v any, has present) []any {
	sound := tr.values(p.SchemaAttribute, p.path, has)
	if _, is := v.(unknown); is && !p.Required {
		return append(slices.Clone(sound), nil)
	} else if is {
		return sound
	}
	elements := []any{"resolved.text", "", nil}
	if p.NestedType != nil {
		elements = []any{tr.configuration(p.NestedType.Attributes, p.path+".", has), nil}
	}
	var all []any
	switch v := v.(type) {
	case []any:
		for i := range v {
			if _, is := v[i].(unknown); is {
				for _, element := range elements {
					all = append(all, slices.Concat(v[:i], []any{element}, v[i+1:]))
				}
			}
		}
	case map[string]any:
		for key := range v {
			if _, is := v[key].(unknown); is {
				for _, element := range elements {
					known := maps.Clone(v)
					known[key] = element
					all = append(all, known)
				}
			}
		}
	}
	if len(all) == 0 {
		return []any{v}
	}
	return all
}

// every tries every place of a resource in a new object, with each sound value and every odd value. Sound values must
// be accepted. With SANDBOX_TEST_LONG, it also changes an object, resolves unknown values to each of their outcomes,
// and tries durations and numbers in all texts. It returns the number of cases.
func (tr trial) every(t *testing.T, newCore func() *core) (n count) {
	known := map[string]bool{}
	for _, p := range places(newCore().fields, "") {
		known[p.path] = true
		if p.NestedType == nil && len(tr.sound[p.path]) == 0 {
			t.Errorf("%s has no sound value to be tried with: add one", p.path)
			continue
		}
		n.place(t, tr, p, newCore())
	}
	for _, at := range slices.Concat(slices.Collect(maps.Keys(tr.sound)), slices.Collect(maps.Keys(tr.needs))) {
		if at != "" && !known[at] {
			t.Errorf("%s is no attribute", at)
		}
	}
	return n
}

func (n *count) place(t *testing.T, tr trial, p place, c *core) {
	defer destroyed(t, c, p.path)
	all := os.Getenv("SANDBOX_TEST_LONG") != ""
	c.hasty = !all
	has := tr.around(p.path)
	with := func(v any) map[string]any {
		values := tr.configuration(c.fields, "", has)
		put(values, p.path, v)
		return values
	}
	sound := tr.values(p.SchemaAttribute, p.path, has)
	accepts := func(v any) {
		if refused, err := n.apply(t.Context(), c, with(v), with(v)); refused != nil || err != nil {
			t.Errorf("with %s = %.80v, which is sound: %v %v", p.path, v, refused, err)
		}
	}
	oddly := func(v, outcome any) {
		refused, err := n.apply(t.Context(), c, with(v), with(outcome))
		if _, is := v.(unknown); err != nil || is && outcome != nil && refused != nil { // the outcome is sound
			t.Errorf("with %s = %.80v, which becomes %.80v: %v %v", p.path, v, outcome, refused, err)
		}
	}
	for _, v := range sound {
		accepts(v)
	}
	destroyed(t, c, p.path)
	edges := odd(p.SchemaAttribute, p.path, sound[0])
	if !all {
		edges = slices.DeleteFunc(slices.Clone(edges), func(v any) bool {
			return isDuration(v) && v != "0" && !isDuration(sound[0]) || isNumber(v) && v != "0" && !isNumber(sound[0])
		})
	}
	each := func(then func()) {
		for _, v := range edges {
			outcomes := tr.outcomes(p, v, has)
			if !all {
				outcomes = outcomes[:1]
			}
			for _, outcome := range outcomes {
				oddly(v, outcome)
				then()
			}
		}
	}
	each(func() { destroyed(t, c, p.path) }) // created
	if all {
		accepts(sound[0])
		each(func() { // changed, and back
			if p.path == "epoch" { // it can only rise
				destroyed(t, c, p.path)
			}
			accepts(sound[0])
		})
	}
}

func isDuration(v any) bool {
	text, _ := v.(string)
	_, err := time.ParseDuration(text)
	return err == nil
}

func isNumber(v any) bool {
	text, _ := v.(string)
	_, err := strconv.ParseFloat(text, 64)
	return err == nil
}

func destroyed(t *testing.T, c *core, place string) {
	t.Helper()
	if err := c.destroy(context.WithoutCancel(t.Context())); err != nil {
		t.Errorf("destroy the object with %s: %v", place, err)
	}
}

// Every attribute of every resource gets every odd value, while everything around it is sound. Either the provider
// refuses it with the attribute's name before anything is done, or it is applied as planned and the next plan changes
// nothing.
func TestEveryAttributeWithEveryOddValue(t *testing.T) {
	t.Parallel()
	server, schemas, dir := leasedInMemory(t)
	for kind, of := range map[string]struct {
		trial
		least int // cases
	}{
		"sandbox_environment":     {environmentTrial(dir), 1100},
		"sandbox_lease":           {trial{sound: soundLease()}, 80},
		"sandbox_container_image": {imageTrial(t), 230},
	} {
		t.Run(kind, func(t *testing.T) {
			n := of.every(t, func() *core { return newCore(server, schemas, kind) })
			t.Logf("%d cases, %d refused, %d applied", n.cases, n.refused, n.applied)
			if n.cases < of.least || n.refused < of.least/4 || n.applied < of.least/4 {
				t.Errorf("that are fewer cases than once")
			}
		})
	}
}

func environmentTrial(dir string) trial {
	return trial{
		sound: soundEnvironment(dir),
		needs: map[string]map[string]any{
			"max_monthly_cost_usd":            {"expected_usage": nil},
			"secrets":                         {"secrets.value_wo": nil, "secrets.value_wo_version": nil},
			"network.credentials":             {"secrets": nil, "network.allow": nil},
			"network.credentials.scheme":      {"network.credentials": nil, "network.credentials.username": nil},
			"network.credentials.username":    {"network.credentials": nil, "network.credentials.scheme": nil},
			"network.authorities":             {"network.credentials": nil},
			"archive.credential_secret":       {"secrets": nil},
			"archive.credential_header":       {"archive.credential_secret": nil},
			"companions.secrets":              {"secrets": nil},
			"companions.health_check":         {"companions.health_check.port": nil},
			"companions.health_check.command": {},
			"llm":                             {"secrets": nil},
			"workspace.git.credential_secret": {"secrets": nil},
			"workspace.git.username":          {"workspace.git.credential_secret": nil},
			"workspace.git.known_hosts": {
				"workspace.git.credential_secret": nil, "workspace.git.url": "ssh://git@git.example.com/team/app.git",
			},
		},
	}
}

func imageTrial(t *testing.T) trial {
	t.Helper()
	return trial{
		sound: soundImage(t),
		needs: map[string]map[string]any{
			"":                                  {"build": nil},
			"source":                            {},
			"name":                              {"build": nil, "registry_auth": nil},
			"keep_tags":                         {"build": nil, "push": nil},
			"registry_auth.username":            {"build": nil, "registry_auth.password_wo": nil},
			"registry_auth.password_wo":         {"build": nil, "registry_auth.username": nil},
			"registry_auth.ca_certificate":      {"build": nil, "push": nil},
			"registry_auth.password_wo_version": {"build": nil, "push": nil},
		},
	}
}
