package ledger_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestEveryFieldOfAContainerIsCompared changes one field after the other. A warm pool must not keep a sandbox whose
// container differs from that of a new one.
func TestEveryFieldOfAContainerIsCompared(t *testing.T) {
	t.Parallel()
	var changed ledger.Container
	for _, f := range fieldsOf(reflect.ValueOf(&changed).Elem(), "Container") {
		set(f.value)
		if (&ledger.Container{}).Difference(changed) == "" {
			t.Errorf("a container with another %s counts as the same", f.name)
		}
		f.value.SetZero()
	}
	if what := (&ledger.Container{}).Difference(changed); what != "" {
		t.Errorf("two equal containers differ in %s", what)
	}
}

// TestStoredContainerEqualsANewOne: empty maps and lists from the ledger equal new ones.
func TestStoredContainerEqualsANewOne(t *testing.T) {
	t.Parallel()
	spec := sandbox.EnvironmentSpec{Env: map[string]string{}, Companions: sandbox.Companions{},
		HostAccess: sandbox.HostAccess{Mounts: []sandbox.Mount{}}}
	made := ledger.NewContainer("", spec)
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	var stored ledger.Container
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	if what := stored.Difference(made); what != "" {
		t.Errorf("they differ in %s", what)
	}
	if what := (&ledger.Container{}).Difference(made); what != "" {
		t.Errorf("empty and missing maps differ in %s", what)
	}
}

type field struct {
	name  string
	value reflect.Value
}

// fieldsOf returns the fields of a struct, and those of structs within it.
func fieldsOf(v reflect.Value, name string) (all []field) {
	if v.Kind() != reflect.Struct {
		return []field{{name, v}}
	}
	for i := range v.NumField() {
		all = append(all, fieldsOf(v.Field(i), name+"."+v.Type().Field(i).Name)...)
	}
	return all
}

// set sets a field to a non-empty value.
func set(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem())
	default:
		panic("set: a field of kind " + v.Kind().String())
	}
}
