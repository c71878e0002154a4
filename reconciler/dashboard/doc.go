// Package dashboard shows what a reconciler knows and does to people: environments, leases, costs, drift and
// what sandboxes reached, as pages of HTML that need no JavaScript to be read.
//
// Who logs in has a token of the API, and sees and does what the token may: each page names the operation of the
// API that it is, and api.Gate judges it as it judges that. A page holds no credential: the browser keeps an id
// of which the ledger has the hash, in a cookie that scripts cannot read and other sites cannot send.
//
// Nothing on a page comes from elsewhere. Styles and scripts are files of this package, and the content security
// policy allows no others and nothing inline. With JavaScript a page follows the ledger: a server-sent event says
// that something it shows has changed, and never what; the page is then read again, and its regions replaced. So
// a page is made in one place, and a slow browser costs a flag and no queue.
package dashboard
