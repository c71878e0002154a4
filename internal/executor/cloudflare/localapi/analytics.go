package localapi

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Counted is the reported usage of an application's containers on one UTC day.
type Counted struct {
	Day                            time.Time
	CPUSeconds                     float64
	MemoryByteSeconds, DiskSeconds float64 // of bytes
}

// Count makes the API report this usage for the applications with a name. Nothing is measured here.
func (s *Server) Count(application string, days ...Counted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted[application] = days
}

// usage is the only dataset, with its fields.
var usage = struct {
	dataset *regexp.Regexp
	fields  []string
}{
	regexp.MustCompile(
		`(?s)^query \w+\(.*viewer \{.*accounts\(filter: \{accountTag: \$account\}\) \{.*containersUsageAdaptiveGroups\(.*` +
			`filter: \{applicationId_in: \$applications, date_geq: \$from, date_leq: \$last\}.*\) \{` +
			`\s*dimensions \{ applicationId date \}\s*sum \{ ([^}]*) \}`),
	[]string{"cpuTimeSec", "allocatedMemory", "allocatedDisk", "txBytes"},
}

const graphQLPath = "/client/v4/graphql"

func (s *Server) routeAnalytics() {
	s.mux.HandleFunc("POST "+graphQLPath, s.locked("analytics", s.answerQuery))
}

// answerQuery answers a query of usage. It refuses any other query with errors and status 200.
func (s *Server) answerQuery(_ *http.Request, body []byte) answer {
	var asked struct {
		Query     string `json:"query"`
		Variables struct {
			Account      string   `json:"account"`
			Applications []string `json:"applications"`
			From         string   `json:"from"`
			Last         string   `json:"last"`
		} `json:"variables"`
	}
	if refused := read(body, &asked); refused != nil {
		return *refused
	}
	found := usage.dataset.FindStringSubmatch(asked.Query)
	if found == nil || asked.Variables.Account == "" {
		return graphQL(nil, "", "cannot query this here")
	}
	for _, field := range strings.Fields(found[1]) {
		if !slices.Contains(usage.fields, field) {
			return graphQL(nil, "", "unknown field "+field)
		}
	}
	groups := []any{}
	for _, id := range asked.Variables.Applications {
		a := s.applications[id]
		if a == nil {
			continue
		}
		for _, c := range s.counted[a.Name] {
			if day := c.Day.Format(time.DateOnly); day >= asked.Variables.From && day <= asked.Variables.Last {
				groups = append(groups, map[string]any{
					"dimensions": map[string]string{"applicationId": id, "date": day},
					"sum": map[string]float64{
						"cpuTimeSec":      c.CPUSeconds,
						"allocatedMemory": c.MemoryByteSeconds,
						"allocatedDisk":   c.DiskSeconds,
					},
				})
			}
		}
	}
	return graphQL(map[string]any{
		"viewer": map[string]any{"accounts": []any{map[string]any{"containersUsageAdaptiveGroups": groups}}},
	}, "", "")
}

// graphQL returns an answer to a query: with data, or with an error.
func graphQL(data any, code, message string) answer {
	envelope := map[string]any{"data": data, "errors": nil}
	if message != "" {
		envelope["errors"] = []any{
			map[string]any{"message": message, "path": nil, "extensions": map[string]string{"code": code}},
		}
	}
	raw, err := json.Marshal(envelope)
	if err != nil {
		return failed(http.StatusInternalServerError, 10013, err.Error())
	}
	return answer{status: http.StatusOK, raw: raw, contentType: "application/json"}
}
