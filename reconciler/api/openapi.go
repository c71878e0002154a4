package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// document builds the OpenAPI document and its routes.
type document struct {
	server *server
	api    huma.API
	err    error // the first error in an operation
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

func newDocument(s *server, version string) *document {
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
			wire.JSON: {Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: strictJSON},
			"json":    huma.DefaultJSONFormat, // of application/problem+json
		},
		DefaultFormat:                wire.JSON,
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{plainProblems},
	}
	return &document{server: s, api: humago.New(s.mux, config)}
}

// add registers a JSON operation for tokens with its scope. Before the handler, it checks the token against the target
// of the input. The domain validates bodies, so that errors have the same fields over HTTP as in process.
func add[I, O any, P input[I]](d *document, scope sandbox.Scope, op huma.Operation,
	handler func(context.Context, service.Service, *I) (*O, error)) {
	if _, hasBody := reflect.TypeFor[I]().FieldByName("Body"); hasBody {
		op.Middlewares = append(op.Middlewares, d.requireJSON)
		op.MaxBodyBytes = maxJSON
		op.BodyReadTimeout = -1 // huma's timeout would also cancel the request's context
		op.SkipValidateBody = true
	}
	huma.Register(d.api, d.common(scope, op), func(ctx context.Context, in *I) (out *O, err error) {
		if err = permit(ctx, tokenOfCaller(ctx), P(in).touches()); err == nil {
			out, err = handler(ctx, d.server.service, in)
		}
		if err != nil {
			p := problemOf(err)
			exchangeOf(ctx).note(p)
			return nil, p
		}
		return out, nil
	})
}

// addRaw registers an operation that reads its body and writes its response itself. It checks access like add. A
// handler that returns an error must not have written anything.
func addRaw[I any, P input[I]](d *document, scope sandbox.Scope, op huma.Operation,
	handler func(http.ResponseWriter, *http.Request, service.Service, *I) error) {
	register(d, scope, op, func(w http.ResponseWriter, r *http.Request, in *I) error {
		if err := permit(r.Context(), tokenOfCaller(r.Context()), P(in).touches()); err != nil {
			return err
		}
		return handler(w, r, d.server.service, in)
	})
}

// addRead is addRaw for an operation with the target in its body. read decodes the body.
func addRead[B toucher](d *document, scope sandbox.Scope, op huma.Operation,
	read func(http.ResponseWriter, *http.Request) (B, error),
	handler func(http.ResponseWriter, *http.Request, service.Service, B) error) {
	register(d, scope, op, func(w http.ResponseWriter, r *http.Request, _ *struct{}) error {
		body, err := read(w, r)
		if err != nil {
			return err
		}
		if err := permit(r.Context(), tokenOfCaller(r.Context()), body.touches()); err != nil {
			return err
		}
		return handler(w, r, d.server.service, body)
	})
}

// register is the common part of addRaw and addRead, which check the target.
func register[I any](d *document, scope sandbox.Scope, op huma.Operation,
	handler func(http.ResponseWriter, *http.Request, *I) error) {
	body := op.RequestBody
	op.RequestBody = nil // otherwise huma would read the body
	huma.Register(d.api, d.common(scope, op), func(_ context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			if err := handler(w, r, in); err != nil {
				d.server.refuse(w, r, err)
			}
		}}, nil
	})
	item := d.api.OpenAPI().Paths[op.Path]
	for _, registered := range []*huma.Operation{item.Get, item.Put, item.Post} {
		if registered != nil && registered.OperationID == op.OperationID {
			registered.RequestBody = body
		}
	}
}

func (d *document) common(scope sandbox.Scope, op huma.Operation) huma.Operation {
	op.Security = d.needs(scope, op.OperationID, op.Method+" "+op.Path)
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = d.content("The request was rejected or failed.", wire.ProblemJSON, wire.Problem{})
	return op
}

// content describes a response or, by its media types, a request.
func (d *document) content(description, contentType string, example any) *huma.Response {
	return &huma.Response{Description: description, Content: map[string]*huma.MediaType{contentType: d.media(example)}}
}

func (d *document) media(example any) *huma.MediaType {
	return &huma.MediaType{Schema: d.api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(example), true, "")}
}

func binary() *huma.MediaType {
	return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
}

// finish returns the document as JSON.
func (d *document) finish() ([]byte, error) {
	if d.err != nil {
		return nil, d.err
	}
	schemas := d.api.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel") // huma's error; plainProblems replaces it
	delete(schemas, "ErrorDetail")
	schemas["PutEnvironment"].Required = []string{"image"} // the path has the id, other fields have defaults
	schemas["Resources"].Required = nil
	for _, schema := range schemas {
		withoutNull(schema)
	}
	for _, item := range d.api.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete} {
			if op == nil {
				continue
			}
			for _, parameter := range op.Parameters {
				withoutNull(parameter.Schema)
			}
		}
	}
	return json.Marshal(d.api.OpenAPI())
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

// requireJSON rejects bodies with another content type.
func (d *document) requireJSON(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if r.ContentLength != 0 && mediaType(r) != wire.JSON {
		d.server.refuse(w, r,
			httpProblem(http.StatusUnsupportedMediaType, "the body must have Content-Type: application/json"))
		return
	}
	next(ctx)
}

func mediaType(r *http.Request) string {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// accepts reports whether the request names a content type in Accept.
func accepts(r *http.Request, contentType string) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if t, _, err := mime.ParseMediaType(part); err == nil && t == contentType {
			return true
		}
	}
	return false
}

// strictJSON decodes one value and rejects unknown fields, so that a misspelt field does not silently leave the
// default.
func strictJSON(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON value")
	}
	return nil
}
