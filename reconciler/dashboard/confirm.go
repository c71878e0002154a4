package dashboard

import (
	"cmp"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
)

// confirmation asks the user to confirm a change.
type confirmation struct {
	Label   string // of the button, such as "Expire"
	Title   string // the question without its mark; "" means Label
	Subject string // the object of the change
	// Consequence describes the effect. Note is additional information, "" for none.
	Consequence, Note string
	Danger            bool
	Post, Back        string        // URLs
	Fields            []format.Pair // of the form
}

// confirm shows a confirmation.
func (p *page) confirm(section string, c confirmation) error {
	c.Title = cmp.Or(c.Title, c.Label)
	return p.show("confirm", c.Title, section, "", c)
}

// done redirects to a page after a change.
func (p *page) done(address string) error {
	http.Redirect(p.w, p.r, address, http.StatusSeeOther)
	return nil
}
