package strictjson

import (
	"reflect"
	"strings"
	"sync"
)

// fields has the fields of a struct by their JSON names.
type fields struct {
	index map[string]int
	names []string
	types []reflect.Type
}

var cache sync.Map // reflect.Type to *fields

func fieldsOf(t reflect.Type) *fields {
	if known, ok := cache.Load(t); ok {
		if f, ok := known.(*fields); ok {
			return f
		}
	}
	f := &fields{index: map[string]int{}}
	f.add(t)
	cache.Store(t, f)
	return f
}

// add adds the fields of a struct before those of its embedded structs: of equal names, the outer one counts.
func (f *fields) add(t reflect.Type) {
	var embedded []reflect.Type
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Tag.Get("json") == "-":
		case field.Anonymous && name == "":
			embedded = append(embedded, pointedTo(field.Type))
		case field.IsExported():
			if name == "" {
				name = field.Name
			}
			if _, known := f.index[name]; !known {
				f.index[name] = len(f.types)
				f.names, f.types = append(f.names, name), append(f.types, field.Type)
			}
		}
	}
	for _, t := range embedded {
		f.add(t)
	}
}

func pointedTo(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
