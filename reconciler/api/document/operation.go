package document

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/bodies"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Toucher is an input that declares the target of its request. A route without one does not compile.
type Toucher interface{ Touches() rights.Target }

// input is a pointer to an input type, which huma fills.
type input[I any] interface {
	*I
	Toucher
}

// Needs sets the required scope of a route and adds it to the document. Reading the ledger or a backend needs read.
// Running something in a sandbox or waking it needs lease. Changing what others lease needs admin. Finish reports
// an operation without a scope as an error.
func (d *Document) Needs(scope sandbox.Scope, operationID, route string) []map[string][]string {
	if !slices.Contains(sandbox.Scopes(), scope) && d.err == nil {
		d.err = fmt.Errorf("operation %s has no scope", operationID)
	}
	d.Scopes[route], d.Operations[operationID] = scope, scope
	return []map[string][]string{{"token": {string(scope)}}}
}

// Handle adds a route that the document does not describe. It sends the error of its handler.
func (d *Document) Handle(pattern string, handler func(http.ResponseWriter, *http.Request) error) {
	d.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if err := handler(w, r); err != nil {
			d.refuse(w, r, err)
		}
	})
}

// Add registers a JSON operation for tokens with its scope. Before the handler, it checks the token against the target
// of the input. The domain validates bodies, so that errors have the same fields over HTTP as in process.
func Add[I, O any, P input[I]](d *Document, scope sandbox.Scope, op huma.Operation,
	handler func(context.Context, service.Service, *I) (*O, error)) {
	if _, hasBody := reflect.TypeFor[I]().FieldByName("Body"); hasBody {
		op.Middlewares = append(op.Middlewares, d.requireJSON)
		op.MaxBodyBytes = bodies.MaxJSON
		op.BodyReadTimeout = -1 // huma's timeout would also cancel the request's context
		op.SkipValidateBody = true
	}
	huma.Register(d.API, d.common(scope, op), func(ctx context.Context, in *I) (out *O, err error) {
		if err = rights.Check(ctx, rights.TokenOf(ctx), P(in).Touches()); err == nil {
			out, err = handler(ctx, d.service, in)
		}
		if err != nil {
			p := problem.Of(err)
			exchange.Of(ctx).Note(p)
			return nil, p
		}
		return out, nil
	})
}

// AddRaw registers an operation that reads its body and writes its response itself. It checks access like Add. A
// handler that returns an error must not have written anything.
func AddRaw[I any, P input[I]](d *Document, scope sandbox.Scope, op huma.Operation,
	handler func(http.ResponseWriter, *http.Request, service.Service, *I) error) {
	register(d, scope, op, func(w http.ResponseWriter, r *http.Request, in *I) error {
		if err := rights.Check(r.Context(), rights.TokenOf(r.Context()), P(in).Touches()); err != nil {
			return err
		}
		return handler(w, r, d.service, in)
	})
}

// AddRead is AddRaw for an operation with the target in its body. read decodes the body.
func AddRead[B Toucher](d *Document, scope sandbox.Scope, op huma.Operation,
	read func(http.ResponseWriter, *http.Request) (B, error),
	handler func(http.ResponseWriter, *http.Request, service.Service, B) error) {
	register(d, scope, op, func(w http.ResponseWriter, r *http.Request, _ *struct{}) error {
		body, err := read(w, r)
		if err != nil {
			return err
		}
		if err := rights.Check(r.Context(), rights.TokenOf(r.Context()), body.Touches()); err != nil {
			return err
		}
		return handler(w, r, d.service, body)
	})
}

// register is the common part of AddRaw and AddRead, which check the target.
func register[I any](d *Document, scope sandbox.Scope, op huma.Operation,
	handler func(http.ResponseWriter, *http.Request, *I) error) {
	body := op.RequestBody
	op.RequestBody = nil // otherwise huma would read the body
	huma.Register(d.API, d.common(scope, op), func(_ context.Context, in *I) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			if err := handler(w, r, in); err != nil {
				d.refuse(w, r, err)
			}
		}}, nil
	})
	item := d.API.OpenAPI().Paths[op.Path]
	for _, registered := range []*huma.Operation{item.Get, item.Put, item.Post} {
		if registered != nil && registered.OperationID == op.OperationID {
			registered.RequestBody = body
		}
	}
}

func (d *Document) common(scope sandbox.Scope, op huma.Operation) huma.Operation {
	op.Security = d.Needs(scope, op.OperationID, op.Method+" "+op.Path)
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = d.Content("The request was rejected or failed.", wire.ProblemJSON, wire.Problem{})
	return op
}

// requireJSON rejects bodies with another content type.
func (d *Document) requireJSON(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if r.ContentLength != 0 && bodies.MediaType(r) != wire.JSON {
		d.refuse(w, r,
			problem.HTTP(http.StatusUnsupportedMediaType, "the body must have Content-Type: application/json"))
		return
	}
	next(ctx)
}
