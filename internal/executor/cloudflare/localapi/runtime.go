package localapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Program is a Worker as it is run.
type Program struct {
	Name              string
	Script            []byte
	CompatibilityDate string
	// Image is what the containers of its Durable Objects run; "" where each start chooses one.
	Image string
	// Images are those that starts choose from, by name.
	Images map[string]string
	// Variables are those in plain text, and secrets; Classes, Databases and Buckets are what it is bound to. All
	// are by the name of their binding.
	Variables, Classes, Databases, Buckets map[string]string
}

// Runtime really runs what is deployed.
type Runtime interface {
	// Deploy runs a Worker, or its next version with what the last one held, and returns where it answers.
	Deploy(ctx context.Context, p Program) (url string, err error)
	// Remove ends a Worker with its containers, and all that it held: its Durable Objects' storage, and what is
	// in its databases and buckets. Absent is success.
	Remove(ctx context.Context, name string) error
	// Query asks the database that a Worker has under a binding, and returns the rows as JSON.
	Query(ctx context.Context, q Query) (rows json.RawMessage, err error)
}

// Query is a statement for a database.
type Query struct {
	Worker    string `json:"worker"`
	Binding   string `json:"binding"`
	Statement string `json:"statement"`
	Params    []any  `json:"params"`
}

// program is what to run of a Worker; there is none before it has a container application.
func (s *Server) program(w *script) (Program, bool) {
	p := Program{
		Name:              w.name,
		Script:            w.content,
		CompatibilityDate: w.metadata.CompatibilityDate,
		Variables:         map[string]string{},
		Classes:           map[string]string{},
		Databases:         map[string]string{},
		Buckets:           map[string]string{},
	}
	for _, b := range w.metadata.Bindings {
		text := func(field string) string { v, _ := b[field].(string); return v }
		switch name := text("name"); text("type") {
		case "plain_text", "secret_text":
			p.Variables[name] = text("text")
		case "durable_object_namespace":
			p.Classes[name] = text("class_name")
		case "d1":
			p.Databases[name] = text("id")
		case "r2_bucket":
			p.Buckets[name] = text("bucket_name")
		}
	}
	for _, a := range s.applications {
		if there, _ := w.namespaceIs(a.DurableObjects.NamespaceID); there {
			p.Image = a.Configuration.Image
			if a.SchedulingPolicy == policyDurableObject {
				p.Images = w.images()
			}
			return p, true
		}
	}
	return p, false
}

// run has a Worker run as it is deployed now, whether its client waits for it or not. What cannot be run is
// answered for.
func (s *Server) run(r *http.Request, w *script) *answer {
	if s.cfg.Runtime == nil {
		return nil
	}
	p, whole := s.program(w)
	if !whole {
		return nil
	}
	url, err := s.cfg.Runtime.Deploy(context.WithoutCancel(r.Context()), p)
	if err != nil {
		a := failed(http.StatusBadRequest, 10021, fmt.Sprintf("it does not run on this machine: %v", err))
		return &a
	}
	w.localURL = url
	return nil
}

// end stops a Worker that runs.
func (s *Server) end(r *http.Request, w *script) *answer {
	if s.cfg.Runtime == nil {
		return nil
	}
	if err := s.cfg.Runtime.Remove(context.WithoutCancel(r.Context()), w.name); err != nil {
		a := failed(http.StatusInternalServerError, 10013, fmt.Sprintf("it does not end on this machine: %v", err))
		return &a
	}
	return nil
}
