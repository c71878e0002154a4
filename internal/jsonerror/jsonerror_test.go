package jsonerror_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/jsonerror"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

type common struct {
	Image  string            `json:"image"`
	TTL    sandbox.Duration  `json:"ttl,omitempty"`
	Sleep  *sandbox.Duration `json:"sleep_after"`
	Labels map[string]string `json:"labels"`
	Mounts []mount           `json:"mounts"`
	hidden string            //nolint:unused // JSON must not see it
}

type mount struct {
	Source   string `json:"source"`
	ReadOnly bool   `json:"read_only"`
	Size     int64  `json:"size_mb"`
}

type request struct {
	ID string `json:"id"`
	common
	Settings *common         `json:"settings"`
	Network  struct{}        `json:"network"`
	Price    sandbox.NanoUSD `json:"price"`
	Share    float64         `json:"share"`
	Small    uint8           `json:"small"`
	At       time.Time       `json:"at"`
	Data     []byte          `json:"data"`
	Any      any             `json:"any"`
	Raw      json.RawMessage `json:"raw"`
	NoJSON   string          `json:"-"`
	One      string          `json:"one"`
	Plain    string
}

var rows = map[string]struct {
	text     string
	want     string
	streamed string // without the text, if it differs
}{
	"a number for a string":           {text: `{"image": 5}`, want: "image: must be a string"},
	"a number for a duration":         {text: `{"ttl": 5}`, want: `ttl: must be a duration such as "1h30m"`},
	"a number for a pointer":          {text: `{"sleep_after": 5}`, want: `sleep_after: must be a duration such as "1h30m"`},
	"a number for money":              {text: `{"price": 5}`, want: `price: must be an amount of US dollars as a string such as "15.61"`},
	"a word for a number":             {text: `{"share": "half"}`, want: "share: must be a number"},
	"a word for a whole number":       {text: `{"small": "one"}`, want: "small: must be a number"},
	"a fraction":                      {text: `{"small": 1.5}`, want: "small: must be a whole number"},
	"a number out of range":           {text: `{"small": 256}`, want: "small: is too large a number"},
	"a negative number":               {text: `{"small": -1}`, want: "small: must not be negative"},
	"a string for a list":             {text: `{"mounts": "/a"}`, want: "mounts: must be a list"},
	"a list for an object":            {text: `{"network": []}`, want: "network: must be an object"},
	"a list for a map":                {text: `{"labels": []}`, want: "labels: must be an object"},
	"a list for all":                  {text: `[]`, want: "must be an object"},
	"a value of a map":                {text: `{"labels": {"team": true}}`, want: "labels.team: must be a string", streamed: "labels: must be a string"},
	"an element":                      {text: `{"mounts": [{}, {"read_only": "yes"}]}`, want: "mounts[1].read_only: must be true or false", streamed: "mounts.read_only: must be true or false"},
	"a nested field":                  {text: `{"settings": {"mounts": [{"size_mb": []}]}}`, want: "settings.mounts[0].size_mb: must be a number", streamed: "settings.mounts.size_mb: must be a number"},
	"a number for a time":             {text: `{"at": 5}`, want: `at: must be a time such as "2026-01-02T15:04:05Z"`, streamed: "Time.UnmarshalJSON: input is not a JSON string"},
	"a word for a time":               {text: `{"at": "noon"}`, want: `at: must be a time such as "2026-01-02T15:04:05Z"`, streamed: `parsing time "noon" as "2006-01-02T15:04:05Z07:00": cannot parse "noon" as "2006"`},
	"a number for bytes":              {text: `{"data": 5}`, want: "data: must be a string in base64"},
	"no base64":                       {text: `{"data": "?"}`, want: "data: must be a string in base64", streamed: "illegal base64 data at input byte 0"},
	"an error of the type's own":      {text: `{"ttl": "5 minutes"}`, want: `ttl: "5 minutes" is not a duration such as "90s", "5m" or "24h"`, streamed: `"5 minutes" is not a duration such as "90s", "5m" or "24h"`},
	"one of the type's own, nested":   {text: `{"settings": {"ttl": ""}}`, want: `settings.ttl: "" is not a duration such as "90s", "5m" or "24h"`, streamed: `"" is not a duration such as "90s", "5m" or "24h"`},
	"a misspelled field":              {text: `{"imgae": "x"}`, want: "imgae: is an unknown field; did you mean image?"},
	"a misspelled nested field":       {text: `{"mounts": [{"sorce": "x"}]}`, want: "mounts[0].sorce: is an unknown field; did you mean source?", streamed: "sorce: is an unknown field"},
	"an unknown field of few":         {text: `{"mounts": [{"destination": "x"}]}`, want: "mounts[0].destination: is an unknown field; the fields are read_only, size_mb, source", streamed: "destination: is an unknown field"},
	"an unknown field of many":        {text: `{"something": 1}`, want: "something: is an unknown field"},
	"a field that JSON does not have": {text: `{"hidden": "x"}`, want: "hidden: is an unknown field"},
	"the first of two":                {text: `{"small": "x", "imgae": "x"}`, want: "small: must be a number"},
	"another case":                    {text: `{"IMAGE": 5}`, want: "image: must be a string"},
	"no tag":                          {text: `{"Plain": 5}`, want: "Plain: must be a string"},
	"a broken text": {
		text: "{\n  \"id\": \"ä\", x}", want: "must be JSON: line 2, column 14: invalid character 'x' looking for beginning of object key string",
		streamed: "must be JSON: invalid character 'x' looking for beginning of object key string",
	},
	"no JSON":       {text: "region: eu", want: "must be JSON: line 1, column 1: invalid character 'r' looking for beginning of value", streamed: "must be JSON: invalid character 'r' looking for beginning of value"},
	"half a text":   {text: `{"id": `, want: "must be JSON, but ends before its value does"},
	"an empty text": {text: "", want: "must be JSON, but is empty"},
	"all is well":   {text: `{"id": "a", "any": [1], "raw": {"x": 1}, "mounts": null, "at": "2026-01-02T15:04:05Z"}`, want: ""},
}

func TestAnErrorNamesTheFieldInItsJSONSpelling(t *testing.T) {
	t.Parallel()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := text(jsonerror.Strict([]byte(row.text), new(request))); got != row.want {
				t.Errorf("%s\n got %s\nwant %s", row.text, got, row.want)
			}
			want := row.want
			if row.streamed != "" {
				want = row.streamed
			}
			d := json.NewDecoder(strings.NewReader(row.text))
			d.DisallowUnknownFields()
			if got := text(jsonerror.Explain(d.Decode(new(request)), nil, new(request))); got != want {
				t.Errorf("%s without its text\n got %s\nwant %s", row.text, got, want)
			}
		})
	}
}

func TestAnErrorHasItsPartsAndItsCause(t *testing.T) {
	t.Parallel()
	var e *jsonerror.Error
	var cause *json.UnmarshalTypeError
	err := jsonerror.Strict([]byte(`{"mounts": [{"source": 1}]}`), new(request))
	if !errors.As(err, &e) || e.Field != "mounts[0].source" || e.Problem != "must be a string" || !errors.As(err, &cause) {
		t.Errorf("got %#v", err)
	}
}

func TestMoreThanOneValueIsAnError(t *testing.T) {
	t.Parallel()
	const want = "must be one JSON value, but more follows it in line 2, column 1"
	if got := text(jsonerror.Strict([]byte("{}\n{}"), new(request))); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAnErrorOfReadingIsNoErrorOfTheText(t *testing.T) {
	t.Parallel()
	if err := jsonerror.Explain(io.ErrClosedPipe, nil, new(request)); err != io.ErrClosedPipe { //nolint:errorlint // as it is
		t.Errorf("got %v", err)
	}
}

func TestAFieldOfOurOwnTypesHasNoGoName(t *testing.T) {
	t.Parallel()
	const want = `ttl: must be a duration such as "1h30m"`
	if got := text(jsonerror.Strict([]byte(`{"id": "a", "ttl": 5}`), new(sandbox.PutEnvironment))); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
