package dashboard

import "net/http"

// confirmation asks the user to confirm a change.
type confirmation struct {
	Label   string // what to do, such as "Expire"
	Subject string // to what
	// Consequence describes the effect. Note is what else to know, "" for nothing.
	Consequence, Note string
	Danger            bool
	Post, Back        string // URLs
	Fields            []pair // of the form
}

// confirm shows a confirmation.
func (p *page) confirm(section string, c confirmation) error {
	return p.show("confirm", c.Label, section, "", c)
}

// done leads to a page after a change.
func (p *page) done(address string) error {
	http.Redirect(p.w, p.r, address, http.StatusSeeOther)
	return nil
}
