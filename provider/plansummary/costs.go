package plansummary

import (
	"fmt"

	tfjson "github.com/hashicorp/terraform-json"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const estimate = "estimated_monthly_cost_usd"

// sum adds up estimates, and remembers whether one is unknown.
type sum struct {
	amount  sandbox.NanoUSD
	unknown bool
}

func (s sum) String() string {
	if s.unknown {
		return dollars(s.amount) + " and what is not known yet"
	}
	return dollars(s.amount)
}

// costs compares the estimates before and after, for every environment that has one.
func costs(planned []*tfjson.ResourceChange) string {
	var before, after sum
	rows := ""
	for _, c := range planned {
		if c.Type != "sandbox_environment" {
			continue
		}
		was, hadOne := amount(c.Change.Before)
		is, hasOne := amount(c.Change.After)
		unknown := attribute(c.Change.AfterUnknown, estimate) == true
		if !hadOne && !hasOne && !unknown {
			continue
		}
		before.amount += was
		after.amount += is
		after.unknown = after.unknown || unknown
		now, then, difference := "none", "none", signed(is-was)
		if hadOne {
			now = dollars(was)
		}
		if hasOne {
			then = dollars(is)
		}
		if unknown {
			then, difference = "known after apply", ""
		}
		rows += fmt.Sprintf("| %s | %s | %s | %s |\n", code(c.Address), now, then, difference)
	}
	if rows == "" {
		return ""
	}
	difference := "not known yet"
	if !after.unknown {
		difference = signed(after.amount - before.amount)
	}
	return "### Estimated cost of a month\n\n| environment | before | after | difference |\n|---|--:|--:|--:|\n" + rows +
		fmt.Sprintf("| **total** | %s | %s | **%s** |\n", before, after, difference)
}

// amount returns an object's estimate, or false if it has none.
func amount(object any) (sandbox.NanoUSD, bool) {
	text, ok := attribute(object, estimate).(string)
	var n sandbox.NanoUSD
	if !ok || n.UnmarshalText([]byte(text)) != nil {
		return 0, false
	}
	return n, true
}

func dollars(n sandbox.NanoUSD) string {
	if n < 0 {
		return "-$" + (-n).Cents()
	}
	return "$" + n.Cents()
}

func signed(n sandbox.NanoUSD) string {
	if n > 0 {
		return "+" + dollars(n)
	}
	return dollars(n)
}
