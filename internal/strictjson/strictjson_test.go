package strictjson_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/strictjson"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

type inner struct {
	Host string   `json:"host"`
	Port uint16   `json:"port"`
	Tags []string `json:"tags"`
}

type embedded struct {
	Image string `json:"image"`
	Count int    `json:"count"`
}

type whole struct {
	embedded
	Command []string          `json:"command"`
	Data    []byte            `json:"data"`
	Env     map[string]string `json:"env"`
	Flag    *bool             `json:"flag"`
	Hosts   []inner           `json:"hosts"`
	In      *inner            `json:"in"`
	Ratio   float64           `json:"ratio"`
	Timeout sandbox.Duration  `json:"timeout"`
	Cost    sandbox.NanoUSD   `json:"cost"`
	At      time.Time         `json:"at"`
	Count   int               `json:"count"`
	Plain   bool
	Hidden  string `json:"-"`
}

func TestProblemsNameTheirFields(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{
		`{"image":7}`:                    {"image: must be a string"},
		`{"in":{"zebra":1}}`:             {"in.zebra: is an unknown field; the fields are host, port, tags"},
		`{"imag":"x"}`:                   {`imag: is an unknown field; did you mean image?`},
		`{"IMAGE":"x"}`:                  {`IMAGE: is an unknown field; did you mean image?`},
		`{"Hidden":"x"}`:                 {"Hidden: is an unknown field"},
		`{"zebra":{"a":[1,"}"]}}`:        {"zebra: is an unknown field"},
		`{"image":"a","image":"b"}`:      {"image: is a duplicate"},
		`{"image":"a","im\u0061ge":"b"}`: {"image: is a duplicate"},
		`{"env":{"A":"1","A":"2"}}`:      {"env.A: is a duplicate"},
		`{"env":{"A":1}}`:                {"env.A: must be a string"},
		`{"env":[]}`:                     {"env: must be an object"},
		`{"command":"echo hi"}`:          {"command: must be a list of strings"},
		`{"command":["a",7]}`:            {"command[1]: must be a string"},
		`{"hosts":{}}`:                   {"hosts: must be a list of objects"},
		`{"hosts":[{"port":70000},{"hots":""}]}`: {
			"hosts[0].port: must be a whole number from 0 to 65535",
			`hosts[1].hots: is an unknown field; did you mean host?`},
		`{"in":{"tags":[[]]}}`:      {"in.tags[0]: must be a string"},
		`{"in":[]}`:                 {"in: must be an object"},
		`{"count":1.5}`:             {"count: must be a whole number"},
		`{"count":"1"}`:             {"count: must be a whole number"},
		`{"ratio":"1"}`:             {"ratio: must be a number"},
		`{"flag":1, "Plain":"yes"}`: {"flag: must be true or false", "Plain: must be true or false"},
		`{"data":"!"}`:              {"data: must be a string in base64"},
		`{"timeout":"1"}`:           {`timeout: "1" is not a duration such as "90s", "5m" or "24h"`},
		`{"timeout":60}`:            {`timeout: must be a string: "60" is not a duration such as "90s", "5m" or "24h"`},
		`{"cost":1.5}`:              {`cost: must be a string: "1.5"`},
		`{"at":"yesterday"}`:        {`at: must be a time in RFC 3339, such as "2026-08-01T12:00:00Z"`},
		`[]`:                        {"body: must be an object"},
		`"x"`:                       {"body: must be an object"},
		``:                          {"body: is not JSON: line 1, column 1: unexpected end of JSON input"},
		`{} {}`:                     {"body: is not JSON: line 1, column 4: invalid character '{' after top-level value"},
		"{\"image\":\"\xff\"}":      {"body: is not valid UTF-8"},
	} {
		var v whole
		var got []string
		for _, f := range strictjson.Decode([]byte(body), &v) {
			got = append(got, f.Name+": "+f.Problem)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s is refused with\n%q, want\n%q", body, got, want)
		}
	}
}

// TestWhatIsValidIsReadAsByEncodingJSON tries every form of a value, with space around it.
func TestWhatIsValidIsReadAsByEncodingJSON(t *testing.T) {
	t.Parallel()
	const body = ` { "image" : "a\"\\" , "command":[ "x" , "\\" ],"data":"AAEC","env":{ "A" : "}" , "B":"" , "" : "" },
		"flag":true,"hosts":[{"host":"h","port":65535,"tags":[]},{}],"in":null,"ratio":1e3,"timeout":"5m","cost":"0.5",
		"at":"2026-08-01T12:00:00Z","count":-3,"Plain":false } `
	var got, want whole
	if err := json.Unmarshal([]byte(body), &want); err != nil {
		t.Fatal(err)
	}
	if problems := strictjson.Decode([]byte(body), &got); problems != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it is read as %+v with %v", got, problems)
	}
	problems := strictjson.DecodeNonNull([]byte(body), &got)
	if len(problems) != 1 || problems[0] != (sandbox.Field{Name: "in", Problem: "must not be null"}) {
		t.Errorf("its null is %v", problems)
	}
}

// TestALargeWrongBodyHasAShortAnswer checks that a sender cannot cause an answer or comparison of megabytes.
func TestALargeWrongBodyHasAShortAnswer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 1<<20)
	problems := strictjson.Decode([]byte(`{`+strings.Repeat(`"`+long+`":1,`, 3)+`"a":1}`), new(whole))
	if len(problems) != 4 || len(problems[0].Name) > 70 {
		t.Errorf("%d problems, the first with a name of %d bytes", len(problems), len(problems[0].Name))
	}
	if n := len(strictjson.Decode([]byte(`{`+strings.Repeat(`"q":1,`, 1000)+`"q":1}`), new(whole))); n != 16 {
		t.Errorf("%d problems are reported, want 16", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"image":"x","hosts":[{"host":"a","tags":["\\"]}],"env":{"A":"1"},"cost":"1.5"}`))
	f.Add([]byte(`{"IMAGE":7,"command":"x","in":[{}], "at":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var strict, lenient whole
		problems := strictjson.Decode(body, &strict)
		if err := json.Unmarshal(body, &lenient); (err != nil) && len(problems) == 0 {
			t.Fatalf("accepted, though %v", err)
		}
		if len(problems) == 0 && !reflect.DeepEqual(strict, lenient) {
			t.Fatalf("%+v is read as %+v", lenient, strict)
		}
	})
}

type input struct {
	Command []string `json:"command"`
	Stdin   string   `json:"stdin"`
}

func bodyOf(size int) []byte {
	data := base64.StdEncoding.EncodeToString(make([]byte, size*3/4))
	return []byte(`{"command":["cat"],"stdin":"` + data + `"}`)
}

func BenchmarkLarge(b *testing.B) {
	body := bodyOf(8<<20 - 100)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if strictjson.Decode(body, new(input)) != nil {
			b.Fatal("refused")
		}
	}
}

// BenchmarkLenient measures the earlier decoder of bodies, for comparison.
func BenchmarkLenient(b *testing.B) {
	body := bodyOf(8<<20 - 100)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		if err := d.Decode(new(input)); err != nil {
			b.Fatal(err)
		}
	}
}
