package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// operation is the part of an OpenAPI operation that the tests read.
type operation struct {
	OperationID string                     `json:"operationId"`
	Summary     string                     `json:"summary"`
	Security    []map[string][]string      `json:"security"`
	Responses   map[string]json.RawMessage `json:"responses"`
	RequestBody *struct {
		Content map[string]json.RawMessage `json:"content"`
	} `json:"requestBody"`
}

type openAPI struct {
	OpenAPI    string                          `json:"openapi"`
	Info       struct{ Title, Version string } `json:"info"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas         map[string]json.RawMessage `json:"schemas"`
		SecuritySchemes map[string]json.RawMessage `json:"securitySchemes"`
	} `json:"components"`
}

func TestDocumentDescribesEveryRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.do("GET", "/openapi.json", "", "Authorization", "")
	doc := want[openAPI](w, a, 200)
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || doc.Info.Version != "1.2.3" || doc.Info.Title == "" {
		t.Errorf("the document begins with %s, %+v", doc.OpenAPI, doc.Info)
	}
	var described []string
	ids := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			route := strings.ToUpper(method) + " " + path
			described = append(described, route)
			if op.OperationID == "" || ids[op.OperationID] || op.Summary == "" {
				t.Errorf("%s has operation id %q, summary %q", route, op.OperationID, op.Summary)
			}
			ids[op.OperationID] = true
			if strings.HasPrefix(path, "/v1/") {
				if len(op.Security) == 0 {
					t.Errorf("%s has no security", route)
				}
				if !strings.Contains(fmt.Sprintf("%s", op.Responses), "problem+json") {
					t.Errorf("%s describes no problem", route)
				}
			}
			for _, requirement := range op.Security {
				for scheme := range requirement {
					if doc.Components.SecuritySchemes[scheme] == nil {
						t.Errorf("%s needs the unknown security scheme %s", route, scheme)
					}
				}
			}
		}
	}
	slices.Sort(described)
	expected := slices.Sorted(slices.Values(routes))
	if !slices.Equal(described, expected) {
		t.Errorf("the document describes\n%q\nwant\n%q", described, expected)
	}
	for _, ref := range regexp.MustCompile(`"\$ref":"([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		name, ok := strings.CutPrefix(ref[1], "#/components/schemas/")
		if !ok || doc.Components.Schemas[name] == nil {
			t.Errorf("the document refers to %s, which it does not have", ref[1])
		}
	}
	for _, leftover := range []string{"ErrorModel", "$schema", `"null"`} {
		if strings.Contains(a.body, leftover) {
			t.Errorf("the document contains %s", leftover)
		}
	}
	for route, types := range map[string][]string{
		"/v1/leases/{id}/exec": {"application/json", "application/x-ndjson"},
		"/v1/conditions":       {"application/json"},
	} {
		for _, contentType := range types {
			if body := doc.Paths[route]["post"].RequestBody; body == nil || body.Content[contentType] == nil {
				t.Errorf("%s does not take %s", route, contentType)
			}
		}
	}
}

func TestDescribedRoutesExist(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, route := range routes {
		method, path, _ := strings.Cut(route, " ")
		a := w.do(method, strings.ReplaceAll(path, "{id}", "did:plc:nobody::none"), "")
		if a.StatusCode == 405 || a.StatusCode == 404 && strings.Contains(a.body, "openapi.json") {
			t.Errorf("%s is not served: %s", route, a.body)
		}
	}
}

// TestStatusTable: the package comment lists the status of every code.
func TestStatusTable(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(doc), "# Status of each code")
	table, thirteen, _ := strings.Cut(table, "# The thirteen errors")
	shown := map[sandbox.Code]int{}
	rows := strings.Join(regexp.MustCompile(`(?m)^//\t.*$`).FindAllString(table, -1), "\n")
	for _, m := range regexp.MustCompile(`([a-z_]+) +([45]\d\d)`).FindAllStringSubmatch(rows, -1) {
		var status int
		if _, err := fmt.Sscan(m[2], &status); err != nil {
			t.Fatal(err)
		}
		shown[sandbox.Code(m[1])] = status
	}
	if len(shown) != 16 {
		t.Errorf("the comment shows %d codes: %v", len(shown), shown)
	}
	w := newWorld(t)
	for code, status := range shown {
		w.wantProblem(w.fails(sandbox.Errorf(code, "the drive is full").WithReason("because")), status, code)
	}
	seeds := regexp.MustCompile(`//\t[A-Z_]+ +([a-z_]+), (sandbox_[a-z_]+) +(\d+)`).FindAllStringSubmatch(thirteen, -1)
	if len(seeds) != 13 {
		t.Errorf("the comment shows %d of thirteen errors", len(seeds))
	}
	for _, row := range seeds {
		if got := fmt.Sprint(shown[sandbox.Code(row[1])]); got != row[3] {
			t.Errorf("%s is shown with status %s, its code with %s", row[2], row[3], got)
		}
	}
}
