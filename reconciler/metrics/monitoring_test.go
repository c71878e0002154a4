package metrics_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const monitoring = "../../examples/monitoring/"

// TestMonitoringAsksForMetricsThatThereAre reads the alerts and the dashboard for operators.
func TestMonitoringAsksForMetricsThatThereAre(t *testing.T) {
	t.Parallel()
	text := scrape(t, busy)
	files, err := filepath.Glob(monitoring + "*")
	if err != nil || len(files) < 3 {
		t.Fatalf("%q: %v", files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\b(sandbox|process|go)_[a-z_]+\b`).FindAllString(string(content), -1)
		if len(names) == 0 {
			t.Errorf("%s uses no metric", file)
		}
		for _, name := range names {
			if !strings.Contains(text, "\n"+name+"{") && !strings.Contains(text, "\n"+name+" ") {
				t.Errorf("%s uses the unknown metric %s", file, name)
			}
		}
	}
}

// TestEveryAlertSaysWhatToDo, and alerts_test.yaml makes each alert fire.
func TestEveryAlertSaysWhatToDo(t *testing.T) {
	t.Parallel()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr         string
				Labels, Annotations map[string]string
			}
		}
	}
	content, err := os.ReadFile(monitoring + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	shown, err := os.ReadFile(monitoring + "alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) == 0 {
		t.Fatalf("there are the groups %+v", file.Groups)
	}
	for _, r := range file.Groups[0].Rules {
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" ||
			!strings.HasSuffix(r.Annotations["runbook"], ".") && !strings.HasSuffix(r.Annotations["runbook"], "`.") {
			t.Errorf("%s does not say what to do: %q", r.Alert, r.Annotations)
		}
		if !strings.Contains(string(shown), `alertname="`+r.Alert+`"`) {
			t.Errorf("%s is never shown to fire", r.Alert)
		}
	}
}

// TestTheDashboardCanBeRead: each panel has a description, a unit and the selected data source, and no panels overlap.
func TestTheDashboardCanBeRead(t *testing.T) {
	t.Parallel()
	type position struct{ X, Y, W, H int }
	var board struct {
		SchemaVersion int
		Templating    struct{ List []struct{ Name, Type string } }
		Panels        []struct {
			ID                       int
			Type, Title, Description string
			GridPos                  position
			Datasource               struct{ UID string }
			FieldConfig              struct {
				Defaults struct {
					Unit       string
					Thresholds struct{ Steps []any }
				}
			}
			Targets []struct{ RefID, Expr, LegendFormat string }
		}
	}
	content, err := os.ReadFile(monitoring + "grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &board); err != nil {
		t.Fatal(err)
	}
	if v := board.Templating.List; board.SchemaVersion < 39 || len(v) == 0 || v[0].Name != "datasource" ||
		v[0].Type != "datasource" {
		t.Errorf("schema %d with the variables %+v", board.SchemaVersion, v)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("%s has the id of another panel", p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies over %q, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		d := p.FieldConfig.Defaults
		if p.Description == "" || d.Unit == "" || len(d.Thresholds.Steps) == 0 || p.Datasource.UID != "${datasource}" ||
			len(p.Targets) == 0 {
			t.Errorf("%s lacks something: %+v", p.Title, p)
		}
		for _, target := range p.Targets {
			if target.Expr == "" || target.LegendFormat == "" {
				t.Errorf("%s asks for %+v", p.Title, target)
			}
		}
	}
}
