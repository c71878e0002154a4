package strictjson

import (
	"reflect"
	"strings"
	"sync"
)

// fields are those of a struct by their names in JSON.
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

// add adds the fields of a struct, before those of the structs that it embeds: the outer one of two equal names counts.
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
