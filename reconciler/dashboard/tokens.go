package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/list"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// tokensPage lists the tokens of the ledger.
type tokensPage struct {
	Search string
	Status string
	Tabs   []tab
	Sort   list.Sorting
	Tokens []tokenRow
}

// tokenRow is a token in the list.
type tokenRow struct {
	sandbox.Token
	State format.Badge
	// Revoke is the URL that revokes it, "" once it has ended.
	Revoke string
}

// tokenStatuses are the filters of tokens.
var tokenStatuses = []string{"valid", "ended", "all"}

// tokenOrders are the orders of tokens.
var tokenOrders = list.Orders[tokenRow]{
	"name":    list.By(func(t tokenRow) string { return t.Name }),
	"created": func(a, b tokenRow) int { return a.CreatedAt.Compare(b.CreatedAt) },
	"expires": func(a, b tokenRow) int { return a.ExpiresAt.Compare(b.ExpiresAt) },
	"used":    func(a, b tokenRow) int { return a.LastUsedAt.Compare(b.LastUsedAt) },
}

// allTokens is the target of pages about tokens: a caller limited to environments may not see them.
func allTokens(*page) (rights.Target, error) { return rights.Everything("managing tokens"), nil }

// showTokens lists the tokens of the ledger, without their texts.
func showTokens(p *page) error {
	v := tokensPage{Search: p.query("q"), Status: p.orDefault("status", tokenStatuses[0])}
	if !slices.Contains(tokenStatuses, v.Status) {
		return sandbox.InvalidFields("the page's URL",
			[]sandbox.Field{{Name: "status", Problem: "must be valid, ended or all"}})
	}
	here := func(status, sort string) string {
		return link.To(link.Root+"tokens", "q", v.Search, "status", status, "sort", sort)
	}
	for _, status := range tokenStatuses {
		v.Tabs = append(v.Tabs, tab{status, here(status, p.query("sort")), status == v.Status})
	}
	v.Sort = list.NewSorting(p.orDefault("sort", "name"), func(by string) string { return here(v.Status, by) })
	all, err := p.caller.Tokens().ListTokens(p.ctx)
	if err != nil {
		return err
	}
	for _, t := range all {
		row := tokenRow{Token: t, State: p.stateOf(t)}
		live := t.Live(p.now())
		if live && p.may("revoke-token") {
			row.Revoke = tokenPath(t.ID)
		}
		if list.Contains(v.Search, t.Name, t.ID) && (v.Status == "all" || live == (v.Status == "valid")) {
			v.Tokens = append(v.Tokens, row)
		}
	}
	if err := tokenOrders.Sort(v.Tokens, v.Sort.By); err != nil {
		return err
	}
	return p.show("tokens", "Tokens", "tokens", "", v)
}

// stateOf returns the state of a token.
func (p *page) stateOf(t sandbox.Token) format.Badge {
	switch {
	case !t.RevokedAt.IsZero():
		return format.Badge{Tone: "none", Text: "revoked"}
	case !t.Live(p.now()):
		return format.Badge{Tone: "none", Text: "expired"}
	default:
		return format.Badge{Tone: "good", Text: "valid"}
	}
}

func tokenPath(id string) string { return link.Root + "tokens/" + id + "/revoke" }

// tokenOfPath returns the token in the path. Errors: NotFound.
func tokenOfPath(p *page) (sandbox.Token, error) {
	id := p.r.PathValue("id")
	all, err := p.caller.Tokens().ListTokens(p.ctx)
	if err != nil {
		return sandbox.Token{}, err
	}
	i := slices.IndexFunc(all, func(t sandbox.Token) bool { return t.ID == id })
	if i < 0 {
		return sandbox.Token{}, sandbox.Errorf(sandbox.NotFound, "token %s does not exist", id)
	}
	return all[i], nil
}

// askRevoke asks to revoke one token.
func askRevoke(p *page) error {
	t, err := tokenOfPath(p)
	if err != nil {
		return err
	}
	if !t.Live(p.now()) {
		return sandbox.Errorf(sandbox.Conflict, "token %s (%s) has ended already", t.Name, t.ID)
	}
	scopes := make([]string, len(t.Scopes))
	for i, s := range t.Scopes {
		scopes[i] = string(s)
	}
	ask := confirmation{
		Label: "Revoke", Danger: true,
		Subject: fmt.Sprintf("The token %s (%s), with the scopes %s and access to %s.", t.Name, t.ID,
			strings.Join(scopes, ", "), cmp.Or(strings.Join(t.Environments, ", "), "all environments")),
		Consequence: "Programs and log-ins that use this token are refused within a second. This cannot be undone.",
		Post:        tokenPath(t.ID), Back: link.Root + "tokens",
	}
	if t.Name == p.caller.Name() {
		ask.Note = "You may have logged in with this token: then you are logged out."
	}
	return p.confirm("tokens", ask)
}

// revoke revokes one token.
func revoke(p *page) error {
	t, err := tokenOfPath(p)
	if err != nil {
		return err
	}
	if _, err := p.caller.Tokens().RevokeToken(p.ctx, t.ID); err != nil {
		return err
	}
	return p.done(link.Root + "tokens")
}
