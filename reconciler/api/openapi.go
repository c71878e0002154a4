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

// document is the OpenAPI document in the making, and the routes that it describes.
type document struct {
	server *server
	api    huma.API
	err    error // the first mistake in an operation
}

// duration and dollars describe values whose JSON form is text.
type (
	duration struct{}
	dollars  struct{}
)

func (duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "A duration as Go writes it.", Examples: []any{"90s", "24h0m0s"}}
}

func (dollars) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "US dollars, exact, with at most nine digits after the point.",
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
				Description: "Leases sandboxes to agents, and ends them when their time or their game is over.",
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

// add registers a JSON operation. The service that handler gets is limited to the caller's rights.
// Bodies are checked by the domain, so that a mistake has the same fields over HTTP as in process.
func add[I, O any](d *document, op huma.Operation, handler func(context.Context, service.Service, *I) (*O, error)) {
	if _, hasBody := reflect.TypeFor[I]().FieldByName("Body"); hasBody {
		op.Middlewares = append(op.Middlewares, d.requireJSON)
		op.MaxBodyBytes = maxJSON
		op.BodyReadTimeout = -1 // huma's would also end the request's context later on
		op.SkipValidateBody = true
	}
	huma.Register(d.api, d.common(op), func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, serviceOf(ctx), in)
		if err != nil {
			p := problemOf(err)
			exchangeOf(ctx).note(p)
			return nil, p
		}
		return out, nil
	})
}

// addRaw registers an operation that reads and writes by itself. An error means that it has not
// written anything.
func addRaw[I any](d *document, op huma.Operation, handler func(http.ResponseWriter, *http.Request, service.Service, *I) error) {
	body := op.RequestBody
	op.RequestBody = nil // huma would read the body
	huma.Register(d.api, d.common(op), func(_ context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			if err := handler(w, r, serviceOf(r.Context()), in); err != nil {
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

// serviceOf returns the service as the authenticated caller may use it.
func serviceOf(ctx context.Context) service.Service {
	service, ok := ctx.Value(serviceKey).(service.Service)
	if !ok { // the routes under /v1 are reached through authenticate only
		panic("api: a request without a caller")
	}
	return service
}

func (d *document) common(op huma.Operation) huma.Operation {
	op.Security = d.security(op)
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = d.content("The request was refused or failed.", wire.ProblemJSON, wire.Problem{})
	return op
}

// content describes a reply or, by its media types, a request.
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
	delete(schemas, "ErrorModel") // huma's own error, which plainProblems replaces
	delete(schemas, "ErrorDetail")
	schemas["PutEnvironment"].Required = []string{"image"} // the path names the environment, the rest has defaults
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

// withoutNull takes null out of what a schema allows: a list without elements is [], and what is not there is left out.
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

// requireJSON refuses bodies of another content type.
func (d *document) requireJSON(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if r.ContentLength != 0 && mediaType(r) != wire.JSON {
		d.server.refuse(w, r, httpProblem(http.StatusUnsupportedMediaType, "the body must have Content-Type: application/json"))
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

// accepts reports whether the request asks for a content type by name.
func accepts(r *http.Request, contentType string) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if t, _, err := mime.ParseMediaType(part); err == nil && t == contentType {
			return true
		}
	}
	return false
}

// strictJSON decodes one value and refuses fields that do not exist: a misspelt setting must not
// silently take its default.
func strictJSON(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the JSON value is followed by other data")
	}
	return nil
}
