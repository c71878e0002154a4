package pricing

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/strictjson"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Cloudflare returns the list prices of Cloudflare Containers. CPU is billed by use, memory and disk by
// provisioned size while a container runs, even idle. A stopped container costs nothing. Requests, egress,
// Durable Objects and storage are billed separately and not part of the book; see Platform.
func Cloudflare() sandbox.PriceBook {
	return sandbox.PriceBook{
		Name:            "cloudflare-containers",
		Source:          "https://developers.cloudflare.com/containers/pricing/",
		AsOf:            "2026-08-21", // date of reading; valid since 2025-11-21
		MemoryGiBSecond: 2500,
		CPUSecond:       20_000,
		DiskGBSecond:    70,
		PlanMonth:       5 * sandbox.USD, // Workers Paid
		Included: sandbox.Allotment{
			MemoryGiBSeconds: 25 * 3600,
			CPUSeconds:       375 * 60,
			DiskGBSeconds:    200 * 3600,
		},
	}
}

// Free returns a book in which everything costs nothing: the default for self-hosted engines.
func Free() sandbox.PriceBook {
	return sandbox.PriceBook{Name: "free", Source: "no price book configured"}
}

// document is the JSON form of a price book. Prices are text, so that an error can name their field.
type document struct {
	Name         string            `json:"name"`
	Source       string            `json:"source"`
	AsOf         string            `json:"as_of"`
	Memory       *string           `json:"memory_gib_second_usd"`
	CPU          *string           `json:"cpu_second_usd"`
	Disk         *string           `json:"disk_gb_second_usd"`
	AsleepMemory string            `json:"asleep_memory_gib_second_usd"`
	AsleepDisk   string            `json:"asleep_disk_gb_second_usd"`
	PlanMonth    string            `json:"plan_month_usd"`
	Included     sandbox.Allotment `json:"included"`
}

// Load reads a price book from a JSON file. Amounts are decimal strings of US dollars with at most nine
// digits after the point. Name, source, its date and the prices of memory, CPU and disk are required. The
// rest defaults to zero. Unknown fields are errors. Errors: sandbox.Invalid, naming each field, and
// sandbox.NotFound if the file does not exist.
func Load(path string) (sandbox.PriceBook, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return sandbox.PriceBook{}, sandbox.Errorf(sandbox.NotFound, "read price book: %w", err)
	} else if err != nil {
		return sandbox.PriceBook{}, sandbox.Errorf(sandbox.Invalid, "read price book: %w", err)
	}
	what := "price book " + path
	doc, err := decode(what, text)
	if err != nil {
		return sandbox.PriceBook{}, err
	}
	book, fields := doc.book()
	if len(fields) > 0 {
		return sandbox.PriceBook{}, sandbox.InvalidFields(what, fields)
	}
	return book, nil
}

func decode(what string, text []byte) (doc document, err error) {
	problems := strictjson.Decode(text, &doc)
	for i, p := range problems {
		switch {
		case p.Name == strictjson.Body:
			return doc, sandbox.Errorf(sandbox.Invalid, "%s: %w", what, strictjson.Err(problems))
		case strings.HasSuffix(p.Name, "_usd") && p.Problem == "must be a string":
			problems[i].Problem = `must be an amount of US dollars as a string such as "0.0000025"`
		}
	}
	return doc, sandbox.InvalidFields(what, problems)
}

// book returns the price book and its wrong fields.
func (d document) book() (sandbox.PriceBook, []sandbox.Field) {
	var fields []sandbox.Field
	bad := func(name, problem string) { fields = append(fields, sandbox.Field{Name: name, Problem: problem}) }
	amount := func(name, text string) sandbox.NanoUSD {
		var n sandbox.NanoUSD
		if text == "" {
			return 0
		}
		if err := n.UnmarshalText([]byte(text)); err != nil {
			bad(name, err.Error())
		} else if n < 0 {
			bad(name, "must not be negative")
		}
		return n
	}
	required := func(name string, text *string) sandbox.NanoUSD {
		if text == nil || *text == "" {
			bad(name, "must be set; use \"0\" if it costs nothing")
			return 0
		}
		return amount(name, *text)
	}
	if d.Name == "" {
		bad("name", "must be set")
	}
	if d.Source == "" {
		bad("source", "must name the source of the prices, such as a URL")
	}
	if _, err := time.Parse(time.DateOnly, d.AsOf); err != nil {
		bad("as_of", "must be the date of the source, such as 2026-08-21")
	}
	if d.Included.MemoryGiBSeconds < 0 || d.Included.CPUSeconds < 0 || d.Included.DiskGBSeconds < 0 {
		bad("included", "must not contain negative quantities")
	}
	return sandbox.PriceBook{
		Name:                  d.Name,
		Source:                d.Source,
		AsOf:                  d.AsOf,
		MemoryGiBSecond:       required("memory_gib_second_usd", d.Memory),
		CPUSecond:             required("cpu_second_usd", d.CPU),
		DiskGBSecond:          required("disk_gb_second_usd", d.Disk),
		AsleepMemoryGiBSecond: amount("asleep_memory_gib_second_usd", d.AsleepMemory),
		AsleepDiskGBSecond:    amount("asleep_disk_gb_second_usd", d.AsleepDisk),
		PlanMonth:             amount("plan_month_usd", d.PlanMonth),
		Included:              d.Included,
	}, fields
}
