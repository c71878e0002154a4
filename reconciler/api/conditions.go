package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/bodies"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const conditionsPath = "/v1/conditions"

func (s *server) registerConditions(d *document.Document) {
	s.mux.HandleFunc("POST "+conditionsPath, s.postCondition)
	problem := func(text string) *huma.Response { return d.Content(text, wire.ProblemJSON, wire.Problem{}) }
	d.API.OpenAPI().AddOperation(&huma.Operation{
		OperationID: "post-condition", Method: http.MethodPost, Path: conditionsPath, Tags: []string{"conditions"},
		Summary: "Report a condition that ends leases",
		Description: "A Standard Webhooks message, either signed or with a bearer token for the environment. " +
			"The response is 202 once the condition is durable. Conditions have no guaranteed order. " +
			"Without webhook-id (bearer token only), the body identifies the message.",
		Security: append([]map[string][]string{{"signature": {}}},
			d.Needs(sandbox.ScopeConditions, "post-condition", "POST "+conditionsPath)...),
		Parameters: []*huma.Param{
			{
				Name:        "webhook-id",
				In:          "header",
				Description: "Id of the message, unique among those for its environment, for idempotent delivery.",
				Schema:      &huma.Schema{Type: huma.TypeString},
			},
			{
				Name:        "webhook-timestamp",
				In:          "header",
				Description: "Unix seconds, at most 5 minutes from the server's time.",
				Schema:      &huma.Schema{Type: huma.TypeString},
			},
			{
				Name:        "webhook-signature",
				In:          "header",
				Description: "v1,<base64>; separate several with spaces.",
				Schema:      &huma.Schema{Type: huma.TypeString},
			},
		},
		RequestBody: &huma.RequestBody{
			Required: true,
			Content:  map[string]*huma.MediaType{wire.JSON: d.Media(sandbox.Condition{})},
		},
		Responses: map[string]*huma.Response{
			"202": d.Content("Stored.", wire.JSON, sandbox.Receipt{}),
			"401": problem("The credentials are missing or wrong."),
			"403": problem("The token lacks the scope conditions, or may not use this environment."),
			"409": problem("The id was already used with a different body."),
			"413": problem("The body is larger than 64 KiB."),
			"415": problem("The body is not application/json."),
			"422": problem("The condition is invalid; see fields."),
			"429": problem("Too many conditions are waiting; retry after Retry-After."),
			"503": problem("The ledger is unavailable; retry after Retry-After."),
		},
	})
}

func (s *server) postCondition(w http.ResponseWriter, r *http.Request) {
	receipt, err := s.receive(w, r)
	s.observer.ConditionReceived(verdictOf(receipt, err))
	if receipt.DidYouMean != "" && !receipt.Duplicate {
		s.observer.ConditionMisspelled()
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	body, err := json.Marshal(receipt)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	h := w.Header()
	h["Content-Type"] = []string{wire.JSON}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(body) // the condition is stored; a sender that disconnected will retry
}

// verdictOf returns the verdict for a condition.
func verdictOf(receipt sandbox.Receipt, err error) string {
	switch {
	case err != nil:
		return string(problem.Of(err).Code)
	case receipt.Duplicate:
		return Duplicate
	}
	return string(receipt.Status)
}

// receive authenticates before it decodes, and decodes before it uses the ledger.
func (s *server) receive(w http.ResponseWriter, r *http.Request) (sandbox.Receipt, error) {
	d, token, err := s.authenticateDelivery(w, r)
	if err != nil {
		return sandbox.Receipt{}, err
	}
	r = s.onBehalf(r, d.Source)
	if contentType := r.Header.Get("Content-Type"); contentType != wire.JSON && bodies.MediaType(r) != wire.JSON {
		return sandbox.Receipt{}, problem.HTTP(http.StatusUnsupportedMediaType,
			"a condition must have Content-Type: application/json")
	}
	if d.Condition, err = webhook.Decode(d.Body); err != nil {
		return sandbox.Receipt{}, err
	}
	x, about := exchange.Of(r.Context()), d.Condition.Data
	if x.Environment = about.EnvironmentID; about.AgentDID != "" {
		x.Lease = sandbox.LeaseID(about.AgentDID, about.EnvironmentID)
	}
	if token != nil {
		if err := rights.Check(r.Context(), *token, rights.Environment(about.EnvironmentID)); err != nil {
			return sandbox.Receipt{}, err
		}
	}
	select {
	case s.conditionSlots <- struct{}{}:
		defer func() { <-s.conditionSlots }()
	default:
		return sandbox.Receipt{}, sandbox.Errorf(sandbox.CapacityExceeded,
			"%d conditions are already waiting for the ledger; retry", cap(s.conditionSlots))
	}
	// A sender that disconnects must not cancel the transaction.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), s.conditionTimeout)
	defer cancel()
	receipt, err := s.service.Deliver(ctx, d)
	if err != nil && (ctx.Err() != nil || sandbox.IsRetryable(err)) {
		return receipt, sandbox.Errorf(sandbox.Unavailable,
			"storing the condition: %w; the outcome is unknown, so retry", err)
	}
	return receipt, err
}

// authenticateDelivery reads the body, and returns its sender and its token. A signed message has no token, and may
// name every environment.
func (s *server) authenticateDelivery(w http.ResponseWriter, r *http.Request) (sandbox.Delivery, *access.Token, error) {
	d := sandbox.Delivery{}
	var token access.Token
	_, byToken := r.Header["Authorization"]
	if byToken {
		var err error
		if token, err = s.tokenOf(r); err != nil {
			return d, nil, err
		}
		if !token.Permits(sandbox.ScopeConditions) {
			return d, nil, rights.ScopeMissing(token, sandbox.ScopeConditions)
		}
	} else if len(r.Header[webhook.HeaderSignature]) == 0 {
		return d, nil, s.unauthenticated(sandbox.ReasonTokenMissing, noCredential,
			sandbox.Errorf(sandbox.Unauthenticated, "webhook: the headers Authorization and %s are missing",
				webhook.HeaderSignature))
	}
	body, err := bodies.ReadAll(w, r.Body, webhook.MaxBody)
	if err != nil {
		return d, nil, err
	}
	d.Body = body
	if !byToken {
		if d.ID, d.Source, err = s.written.Load().secrets.Verify(r.Header, body, s.now()); err != nil {
			return d, nil, s.noteFailure(s.addressOf(r), s.unauthenticated(sandbox.ReasonSignatureWrong, wrongSignature, err))
		}
		exchange.Of(r.Context()).Authenticated(r)
		return d, nil, nil
	}
	d.Source, d.ID = token.Source(), r.Header.Get(webhook.HeaderID)
	if d.ID == "" {
		sum := sha256.Sum256(body)
		d.ID = "sha256-" + hex.EncodeToString(sum[:])
	}
	return d, &token, webhook.CheckID(d.ID)
}
