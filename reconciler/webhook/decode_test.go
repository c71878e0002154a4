package webhook_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const goodCondition = `{"type":"agent.death","timestamp":"2026-08-01T12:00:00.5Z","data":{"environment_id":"rpg-1","agent_did":"did:plc:abc","generation":2,"reason":"dragon"}}`

func TestDecodeReadsEveryField(t *testing.T) {
	t.Parallel()
	got, err := webhook.Decode([]byte(" " + goodCondition + "\n"))
	want := sandbox.Condition{
		Type: "agent.death", Timestamp: time.Date(2026, 8, 1, 12, 0, 0, 5e8, time.UTC),
		Data: sandbox.ConditionData{EnvironmentID: "rpg-1", AgentDID: "did:plc:abc", Generation: 2, Reason: "dragon"},
	}
	if err != nil || got != want {
		t.Errorf("Decode = %+v, %v", got, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	const ok = `"type":"game.finished","timestamp":"2026-08-01T12:00:00Z"`
	for name, test := range map[string]struct {
		body   string
		fields []string
	}{
		"nothing":            {body: "", fields: []string{"body"}},
		"half of it":         {body: goodCondition[:60], fields: []string{"body"}},
		"data after it":      {body: goodCondition + " {}", fields: []string{"body"}},
		"a bracket after it": {body: goodCondition + "}", fields: []string{"body"}},
		"two of them":        {body: goodCondition + goodCondition, fields: []string{"body"}},
		"invalid UTF-8":      {body: "{\"type\":\"a.\xff\"}", fields: []string{"body"}},
		"a comma too many":   {body: `{"type":"a.b",}`, fields: []string{"body"}},
		"an array":           {body: `[` + goodCondition + `]`, fields: []string{"body"}},
		"null":               {body: `null`, fields: []string{"body"}},
		"a string":           {body: `"x"`, fields: []string{"body"}},
		"an empty object":    {body: `{}`, fields: []string{"type", "timestamp", "data.environment_id"}},
		"an unknown field": {
			body:   `{` + ok + `,"data":{"environment_id":"c"},"extra":{"a":[1]}}`,
			fields: []string{"extra"},
		},
		"an unknown nested field": {
			body:   `{` + ok + `,"data":{"environment_id":"c","agent":"x"}}`,
			fields: []string{"data.agent"},
		},
		"a field twice": {
			body:   `{` + ok + `,"type":"game.finished","data":{"environment_id":"c"}}`,
			fields: []string{"type"},
		},
		"a nested field twice": {
			body:   `{` + ok + `,"data":{"environment_id":"c","environment_id":"d"}}`,
			fields: []string{"data.environment_id"},
		},
		"a field twice, escaped": {
			body:   `{` + ok + `,"typ\u0065":"game.finished","data":{"environment_id":"c"}}`,
			fields: []string{"type"},
		},
		"a field in other case": {
			body:   `{"Type":"game.finished","timestamp":"2026-08-01T12:00:00Z","data":{"environment_id":"c"}}`,
			fields: []string{"Type"},
		},
		"data that is null":   {body: `{` + ok + `,"data":null}`, fields: []string{"data"}},
		"data that is a list": {body: `{` + ok + `,"data":[]}`, fields: []string{"data"}},
		"an agent that is null": {
			body:   `{` + ok + `,"data":{"environment_id":"c","agent_did":null}}`,
			fields: []string{"data.agent_did"},
		},
		"wrong types": {body: `{"type":1,"timestamp":5,"data":{"environment_id":true,"generation":"1"}}`,
			fields: []string{"type", "timestamp", "data.environment_id", "data.generation"}},
		"half a generation": {
			body:   `{` + ok + `,"data":{"environment_id":"c","agent_did":"did:plc:a","generation":1.5}}`,
			fields: []string{"data.generation"},
		},
		"an end that is no end": {
			body:   `{"type":"game","timestamp":"2026-08-01T12:00:00Z","data":{"environment_id":"c"}}`,
			fields: []string{"type"},
		},
		"a death without an agent": {
			body:   `{"type":"agent.death","timestamp":"2026-08-01T12:00:00Z","data":{"environment_id":"rpg-1"}}`,
			fields: []string{"data.agent_did"},
		},
		"a time without a timezone": {
			body:   `{"type":"a.b","timestamp":"2026-08-01 12:00","data":{"environment_id":"c"}}`,
			fields: []string{"timestamp"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := webhook.Decode([]byte(test.body))
			e, ok := errors.AsType[*sandbox.Error](err)
			if !ok || e.Code != sandbox.Invalid {
				t.Fatalf("Decode returned %v, not invalid", err)
			}
			var names []string
			for _, f := range e.Fields {
				names = append(names, f.Name)
			}
			if !slices.Equal(names, test.fields) {
				t.Errorf("the fields at fault are %q, want %q (%v)", names, test.fields, err)
			}
		})
	}
}

// FuzzDecode: an accepted body means the same to a lenient decoder, and survives a round trip.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(goodCondition))
	f.Add([]byte(`{"type":"game.finished","timestamp":"2026-08-01T12:00:00+02:00","data":{"environment_id":"catan-7"}}`))
	f.Add([]byte(`{"type":"a.b","type":"c.d","data":{},"data":null}`))
	f.Add([]byte(strings.Repeat("[", 1000)))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := webhook.Decode(body)
		if err != nil {
			if sandbox.CodeOf(err) != sandbox.Invalid {
				t.Fatalf("error without a code: %v", err)
			}
			return
		}
		var lenient sandbox.Condition
		if err := json.Unmarshal(body, &lenient); err != nil {
			t.Fatalf("encoding/json refuses what Decode accepts: %v", err)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := webhook.Decode(again)
		if err != nil {
			t.Fatalf("refused after a round trip: %v", err)
		}
		for _, other := range []sandbox.Condition{lenient, twice} {
			if other.Type != got.Type || other.Data != got.Data || !other.Timestamp.Equal(got.Timestamp) {
				t.Fatalf("%+v is read as %+v", other, got)
			}
		}
	})
}
