package localapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Program is a Worker to run.
type Program struct {
	Name              string
	Script            []byte
	CompatibilityDate string
	// Image is the image of its Durable Objects' containers; "" if each start chooses one.
	Image string
	// Images are the images that starts choose from, by name.
	Images map[string]string
	// Variables are plain texts and secrets; Classes, Databases and Buckets are the bound objects. The keys are the names
	// of bindings.
	Variables, Classes, Databases, Buckets map[string]string
}

// Runtime runs the deployed Workers for real.
type Runtime interface {
	// Deploy runs a Worker and returns its address. A new version keeps the data of the last one.
	Deploy(ctx context.Context, p Program) (url string, err error)
	// Remove ends a Worker with its containers and deletes its data: the storage of its Durable Objects, and the contents
	// of its databases and buckets. Absent is success.
	Remove(ctx context.Context, name string) error
	// Query runs a statement in the database that a Worker has under a binding, and returns the rows as JSON.
	Query(ctx context.Context, q Query) (rows json.RawMessage, err error)
}

// Query is a statement for a database.
type Query struct {
	Worker    string `json:"worker"`
	Binding   string `json:"binding"`
	Statement string `json:"statement"`
	Params    []any  `json:"params"`
}

// program returns the program of a Worker. There is none before the Worker has a container application.
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

// run runs a Worker as it is deployed now, even if its client stops waiting. It returns an answer if the Worker cannot
// run.
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

// end stops a running Worker.
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
