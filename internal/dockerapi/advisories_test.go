package dockerapi_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestTheProgramLinksNothingOfTheEngine checks the claim of the OpenVEX statement: advisories about dockerd do not
// apply to a program that has only the client.
func TestTheProgramLinksNothingOfTheEngine(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "../..")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := regexp.MustCompile(`^github.com/docker/docker/(api(/types(/[a-z/]+)?)?|client|pkg/(jsonmessage|stdcopy))$`)
	linked := 0
	for _, pkg := range strings.Fields(string(out)) {
		if !strings.HasPrefix(pkg, "github.com/docker/docker/") {
			continue
		}
		linked++
		if !allowed.MatchString(pkg) {
			t.Errorf("the program links %s: check .github/terraform-provider-sandbox.openvex.json", pkg)
		}
	}
	if linked == 0 {
		t.Error("the program no longer links the module: withdraw the OpenVEX statement")
	}
}

// TestTheStatementIsOfTheVersionInUse fails if the module's version changes and the statement does not.
func TestTheStatementIsOfTheVersionInUse(t *testing.T) {
	t.Parallel()
	version, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}",
		"github.com/docker/docker").Output()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile("../../.github/terraform-provider-sandbox.openvex.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Statements []struct {
			Products []struct {
				Subcomponents []struct {
					ID string `json:"@id"`
				} `json:"subcomponents"`
			} `json:"products"`
		} `json:"statements"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		t.Fatal(err)
	}
	want := "pkg:golang/github.com/docker/docker@" + strings.ReplaceAll(strings.TrimSpace(string(version)), "+", "%2B")
	if len(document.Statements) == 0 {
		t.Error("the document states nothing")
	}
	for _, s := range document.Statements {
		for _, p := range s.Products {
			if len(p.Subcomponents) != 1 || p.Subcomponents[0].ID != want {
				t.Errorf("a statement is about %v, and the program has %s", p.Subcomponents, want)
			}
		}
	}
}
