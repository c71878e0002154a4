package pricing_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestAWrittenBookIsReadBack(t *testing.T) {
	t.Parallel()
	want := pricing.Cloudflare()
	want.AsleepDiskGBSecond = 1
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pricing.Load(write(t, string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("read %+v, wrote %+v", got, want)
	}
}

func TestOnlyNameSourceAndPricesAreRequired(t *testing.T) {
	t.Parallel()
	got, err := pricing.Load(write(t, `{"name": "rack 3", "source": "invoice 17", "as_of": "2026-08-21", "memory_gib_second_usd": "0.000001", "cpu_second_usd": "0.00001", "disk_gb_second_usd": "0"}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := (sandbox.PriceBook{
		Name:            "rack 3",
		Source:          "invoice 17",
		AsOf:            "2026-08-21",
		MemoryGiBSecond: 1000,
		CPUSecond:       10_000,
	}); got != want {
		t.Errorf("read %+v, want %+v", got, want)
	}
}

func TestAWrongBookIsRefusedByField(t *testing.T) {
	t.Parallel()
	_, err := pricing.Load(write(t, `{"as_of": "last summer", "memory_gib_second_usd": "free", "cpu_second_usd": "-1",
		"asleep_disk_gb_second_usd": "0.0000000001", "included": {"cpu_seconds": -5}}`))
	assertFields(t, err, "name", "source", "as_of", "memory_gib_second_usd", "cpu_second_usd", "disk_gb_second_usd",
		"asleep_disk_gb_second_usd", "included")
}

func TestAWrongJSONTypeIsRefusedByField(t *testing.T) {
	t.Parallel()
	_, err := pricing.Load(write(t, `{"name": "rack 3", "cpu_second_usd": 0.00002}`))
	assertFields(t, err, "cpu_second_usd")
	_, err = pricing.Load(write(t, `{"name": "rack 3", "included": {"cpu_seconds": 1.5}}`))
	assertFields(t, err, "included.cpu_seconds")
}

func TestABookIsReadStrictly(t *testing.T) {
	t.Parallel()
	for text, mention := range map[string]string{
		`{"name": "rack 3", "gpu_second_usd": "1"}`: "prices.json is not valid; gpu_second_usd: is an unknown field; did you mean cpu_second_usd?",
		`{"name": "rack 3"} {}`:                     "prices.json: is not JSON: line 1, column 20: invalid character",
		`{"name": "rack 3"`:                         "prices.json: is not JSON: line 1, column 17: unexpected end of JSON input",
		"{\n  name: rack":                           "prices.json: is not JSON: line 2, column 3: invalid character 'n'",
		"region: eu":                                "prices.json: is not JSON: line 1, column 1: invalid character 'r'",
	} {
		_, err := pricing.Load(write(t, text))
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), mention) {
			t.Errorf("%s: error %v, want an invalid that mentions %s", text, err, mention)
		}
	}
	if _, err := pricing.Load(filepath.Join(t.TempDir(), "absent.json")); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("absent file: %v, want not_found", err)
	}
}

func TestFreeCostsNothing(t *testing.T) {
	t.Parallel()
	e := pricing.EstimateMonth(pricing.Free(), sandbox.DefaultResources,
		pricing.Usage{Leases: 100, HoursPerDay: 24 * time.Hour, CPUSharePercent: 100})
	if e != (pricing.Estimate{}) {
		t.Errorf("estimate = %+v, want nothing", e)
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prices.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// assertFields checks that err is Invalid and names exactly these fields.
func assertFields(t *testing.T, err error, names ...string) {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != sandbox.Invalid {
		t.Errorf("error = %v, want invalid", err)
		return
	}
	var got []string
	for _, f := range e.Fields {
		got = append(got, f.Name)
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("fields = %q, want %q", got, names)
	}
}
