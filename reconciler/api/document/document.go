// Package document registers the operations of the API with their scopes, and describes them with OpenAPI.
package document

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/strictjson"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/bodies"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Document builds the OpenAPI document and its routes.
type Document struct {
	// API is the document and its routes.
	API huma.API
	// Scopes has the scope that each route needs, Operations that of each operation id.
	Scopes, Operations map[string]sandbox.Scope

	service service.Service
	refuse  func(w http.ResponseWriter, r *http.Request, err error)
	mux     *http.ServeMux
	err     error // the first error in an operation
}

// duration and dollars describe values with a JSON string form.
type (
	duration struct{}
	dollars  struct{}
)

func (duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type:        huma.TypeString,
		Description: "A duration in Go syntax.",
		Examples:    []any{"90s", "24h0m0s"},
	}
}

func (dollars) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "An exact amount in US dollars, with at most nine decimals.",
		Pattern: `^-?[0-9]+(\.[0-9]{1,9})?$`, Examples: []any{"15.61", "0.000025"}}
}

// New returns a document without operations. Its operations call the service, and mux serves them. refuse sends an
// error.
func New(version string, service service.Service, mux *http.ServeMux,
	refuse func(http.ResponseWriter, *http.Request, error)) *Document {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(reflect.TypeFor[sandbox.Duration](), reflect.TypeFor[duration]())
	schemas.RegisterTypeAlias(reflect.TypeFor[sandbox.NanoUSD](), reflect.TypeFor[dollars]())
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:       "Sandbox reconciler",
				Version:     version,
				Description: "Leases sandboxes to agents, and ends the leases when their time is up or their game is over.",
			},
			Components: &huma.Components{
				Schemas: schemas,
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token": {Type: "http", Scheme: "bearer", Description: scopesText},
					"signature": {Type: "apiKey", In: "header", Name: "webhook-signature",
						Description: "Standard Webhooks: webhook-id, webhook-timestamp and webhook-signature."},
				},
			},
		},
		Formats: map[string]huma.Format{
			wire.JSON: {Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: decodeBody},
			"json":    huma.DefaultJSONFormat, // of application/problem+json
		},
		DefaultFormat:                wire.JSON,
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{plainProblems},
	}
	return &Document{
		API: humago.New(mux, config), Scopes: map[string]sandbox.Scope{}, Operations: map[string]sandbox.Scope{},
		service: service, refuse: refuse, mux: mux,
	}
}

const scopesText = "A token has scopes: read, lease (includes read), conditions, admin (includes all). " +
	"A token may be limited to environments, and then has no access to others."

// Content describes a response or, by its media types, a request.
func (d *Document) Content(description, contentType string, example any) *huma.Response {
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{contentType: d.Media(example)}}
}

// Media is the media type of a value like example.
func (d *Document) Media(example any) *huma.MediaType {
	return &huma.MediaType{Schema: d.API.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(example), true, "")}
}

// Binary is the media type of bytes.
func Binary() *huma.MediaType {
	return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
}

// Finish completes the document and returns it as JSON, which is made when it is first asked for: no request needs it
// but that for the document. Errors: an operation without a scope.
func (d *Document) Finish() (text func() ([]byte, error), err error) {
	if d.err != nil {
		return nil, d.err
	}
	schemas := d.API.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel") // huma's error; plainProblems replaces it
	delete(schemas, "ErrorDetail")
	schemas["PutEnvironment"].Required = []string{"image"} // the path has the id, other fields have defaults
	schemas["Resources"].Required = nil
	for _, schema := range schemas {
		withoutNull(schema)
	}
	for _, item := range d.API.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete} {
			if op == nil {
				continue
			}
			for _, parameter := range op.Parameters {
				withoutNull(parameter.Schema)
			}
		}
	}
	d.leaveMaximaToTheDomain()
	return sync.OnceValues(func() ([]byte, error) { return json.Marshal(d.API.OpenAPI()) }), nil
}

// leaveMaximaToTheDomain stops huma from checking the maximum page sizes in the document. The domain reports a page
// size that is too large together with the other fields. The document keeps a copy of what huma checks.
func (d *Document) leaveMaximaToTheDomain() {
	for _, item := range d.API.OpenAPI().Paths {
		if item.Get == nil {
			continue
		}
		for _, parameter := range item.Get.Parameters {
			if parameter.Name == "limit" {
				documented := *parameter.Schema
				parameter.Schema.Maximum = nil
				parameter.Schema = &documented
			}
		}
	}
}

// withoutNull removes null from a schema: an empty list is [], and an absent value is omitted.
func withoutNull(s *huma.Schema) {
	if s == nil {
		return
	}
	s.Nullable = false
	withoutNull(s.Items)
	for _, property := range s.Properties {
		withoutNull(property)
	}
	if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
		withoutNull(more)
	}
}

// wrongBody are the problems of a body. Its text has them as JSON for problemOf, because huma keeps only the text of a
// decoder's error.
type wrongBody []sandbox.Field

func (w wrongBody) Error() string {
	text, err := json.Marshal([]sandbox.Field(w))
	if err != nil { // strings always marshal
		panic(err)
	}
	return string(text)
}

// decodeBody decodes a body for huma.
func decodeBody(data []byte, v any) error {
	if problems := strictjson.Decode(data, v); problems != nil {
		return wrongBody(problems)
	}
	return nil
}

// plainProblems converts huma's errors to problems.
func plainProblems(ctx huma.Context, _ string, v any) (any, error) {
	switch e := v.(type) {
	case *problem.Problem:
		return e.Problem, nil
	case *huma.ErrorModel:
		p := problemOf(e)
		exchange.Of(ctx.Context()).Note(p)
		return p.Problem, nil
	default:
		return v, nil
	}
}

// problemOf converts one of huma's errors. It drops the values that huma quotes, because they may be secrets.
func problemOf(e *huma.ErrorModel) *problem.Problem {
	if e.Status == http.StatusRequestEntityTooLarge {
		return problem.TooLarge("the body", bodies.MaxJSON)
	}
	p := problem.HTTP(e.Status, e.Detail)
	for _, d := range e.Errors {
		part, name, nested := strings.Cut(d.Location, ".") // "query.limit", "body"
		if p.Fields == nil {
			p.Detail = "the " + part + " of the request is not valid"
		}
		var body []sandbox.Field
		switch {
		case nested:
			p.Fields = append(p.Fields, sandbox.Field{Name: name, Problem: d.Message})
		case json.Unmarshal([]byte(d.Message), &body) == nil:
			p.Fields = append(p.Fields, body...)
		default:
			p.Fields = append(p.Fields, sandbox.Field{Name: d.Location, Problem: d.Message})
		}
	}
	return p
}
