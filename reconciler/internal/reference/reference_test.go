package reference_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/reference"
)

func TestParseKeepsBoundsDefaultsAndTypes(t *testing.T) {
	t.Parallel()
	r, err := reference.Parse([]byte(`{"info": {"title": "T", "version": "1"}, "paths": {"/v1/games/{id}": {"post": {
		"operationId": "play", "summary": "Play", "tags": ["games"], "security": [{"token": ["lease"]}, {"signature": []}],
		"parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}},
			{"name": "turn", "in": "query", "required": true, "schema": {"type": "integer", "minimum": 1, "maximum": 9}}],
		"requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Move"}}}},
		"responses": {"default": {"description": "It failed."}}}}},
		"components": {"schemas": {"Move": {"type": "object", "required": ["to"], "properties": {
			"a": {"type": "array", "maxItems": 3, "items": {"$ref": "#/components/schemas/Move"}},
			"b": {"type": "object", "additionalProperties": {"type": "string", "enum": ["x", "y"]}},
			"c": {"type": "boolean", "default": true},
			"to": {"type": "string", "description": "Where.", "pattern": "^[a-z]+$", "examples": ["it's"]}}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	fields := []reference.Field{
		{Name: "to", Type: reference.Type{Before: "string"}, Required: true, Description: "Where.",
			Facts: []string{"pattern `^[a-z]+$`", "such as `it's`"}},
		{Name: "a", Type: reference.Type{Before: "list of ", Ref: "Move"}, Facts: []string{"elements: at most 3"}},
		{Name: "b", Type: reference.Type{Before: "map of string"}, Facts: []string{"one of `x`, `y`"}},
		{Name: "c", Type: reference.Type{Before: "boolean"}, Facts: []string{"default `true`"}},
	}
	want := []reference.Tag{{Name: "games", Operations: []reference.Operation{{
		ID: "play", Method: "POST", Path: "/v1/games/{id}", Summary: "Play",
		Needs: []string{"token with the scope lease", "signature"},
		Parameters: []reference.Field{
			{Name: "id", In: "path", Type: reference.Type{Before: "string"}, Required: true},
			{Name: "turn", In: "query", Type: reference.Type{Before: "integer"}, Required: true, Facts: []string{"1 to 9"}},
		},
		Bodies:    []reference.Body{{MediaType: "application/json", Type: reference.Type{Ref: "Move"}, Fields: fields}},
		Responses: []reference.Response{{Status: "error", Description: "It failed."}},
		Curl: `curl -X POST "$RECONCILER/v1/games/ID?turn=1" \
  -H "Authorization: Bearer $TOKEN" \
  -H 'Content-Type: application/json' \
  -d '{"to":"it'\''s"}'`,
	}}}}
	if diff := cmp.Diff(want, r.Tags); diff != "" {
		t.Error(diff)
	}
	if len(r.Schemas) != 1 || !slices.EqualFunc(r.Schemas[0].Fields, fields, func(a, b reference.Field) bool { return cmp.Equal(a, b) }) {
		t.Errorf("the schemas are %+v", r.Schemas)
	}
	if _, err := reference.Parse([]byte("{")); err == nil {
		t.Error("it parses a document that ends early")
	}
}
