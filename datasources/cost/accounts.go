package cost

import (
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Account is what one account owes for one month.
type Account struct {
	Backend  types.String `tfsdk:"backend"`
	Instance types.String `tfsdk:"instance"`
	Month    types.String `tfsdk:"month"`
	Statement
	Shadow Statement `tfsdk:"shadow"`
}

// Statement is what an account owes at the prices of one price book.
type Statement struct {
	PriceBook types.String `tfsdk:"price_book"`
	Source    types.String `tfsdk:"source"`
	AsOf      types.String `tfsdk:"source_as_of"`
	Lines     []Line       `tfsdk:"lines"`
	Amounts
}

// Line is an account's usage of one resource.
type Line struct {
	Resource  types.String  `tfsdk:"resource"`
	Unit      types.String  `tfsdk:"unit"`
	Used      types.Float64 `tfsdk:"used"`
	Allotment types.Float64 `tfsdk:"allotment"`
	Gross     types.String  `tfsdk:"gross_usd"`
	Included  types.String  `tfsdk:"included_usd"`
}

func text(description string) schema.Attribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

func accountsAttribute() schema.Attribute {
	attributes := map[string]schema.Attribute{
		"backend":  text("Backend of the account."),
		"instance": text("The engine or account."),
		"month":    text("Calendar month in UTC, such as `2026-01`."),
		"shadow": schema.SingleNestedAttribute{
			MarkdownDescription: "The same usage on Cloudflare.",
			Computed:            true,
			Attributes:          statementAttributes(),
		},
	}
	maps.Copy(attributes, statementAttributes())
	return schema.ListNestedAttribute{
		MarkdownDescription: "What each account owes for each whole calendar month that the report touches, whatever the " +
			"filters select. Empty for a token that is limited to environments.",
		Computed:     true,
		NestedObject: schema.NestedAttributeObject{Attributes: attributes},
	}
}

func statementAttributes() map[string]schema.Attribute {
	number := func(description string) schema.Attribute {
		return schema.Float64Attribute{MarkdownDescription: description, Computed: true}
	}
	attributes := map[string]schema.Attribute{
		"price_book":   text("Name of the price book whose plan the account was on."),
		"source":       text("Source of its prices."),
		"source_as_of": text("Date of its source."),
		"lines": schema.ListNestedAttribute{
			MarkdownDescription: "Usage by resource.",
			Computed:            true,
			NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
				"resource":     text("`memory`, `cpu` or `disk` while awake, or `asleep`."),
				"unit":         text("Unit of `used` and `allotment`: `GiB-hours`, `vCPU-minutes`, `GB-hours` or `hours`."),
				"used":         number("Quantity used."),
				"allotment":    number("Quantity that the plan includes in a month."),
				"gross_usd":    text("Exact cost at list price, in US dollars."),
				"included_usd": text("Exact amount that the allotment subtracts, in US dollars."),
			}},
		},
	}
	maps.Copy(attributes, amountAttributes())
	return attributes
}

func accounts(months []sandbox.AccountMonth) []Account {
	all := make([]Account, len(months))
	for i, a := range months {
		all[i] = Account{
			Backend: value.String(a.Backend), Instance: value.String(a.Instance), Month: value.String(a.Month),
			Statement: statement(a.Statement), Shadow: statement(a.Shadow),
		}
	}
	return all
}

func statement(s sandbox.Statement) Statement {
	lines := make([]Line, len(s.Lines))
	for i, l := range s.Lines {
		lines[i] = Line{
			Resource: value.String(l.Resource), Unit: value.String(l.Unit),
			Used: types.Float64Value(l.Used), Allotment: types.Float64Value(l.Allotment),
			Gross: types.StringValue(l.Gross.String()), Included: types.StringValue(l.Included.String()),
		}
	}
	return Statement{
		PriceBook: value.String(s.PriceBook),
		Source:    value.String(s.Source),
		AsOf:      value.String(s.AsOf),
		Lines:     lines,
		Amounts:   amounts(s.Amounts),
	}
}
