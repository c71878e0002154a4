// Package dashboard is the web interface of a reconciler. It shows environments, leases, costs, drift, egress and calls
// of models as HTML pages that need no JavaScript.
//
// Users log in with a token of the API and have the rights of that token. Or they log in at an OpenID Connect provider
// (package oidc) and have the rights of a role. Each page names an operation of the API, and api.Gate checks access to
// it. Pages hold no credentials. The browser keeps a login id in a cookie that scripts cannot read and other sites
// cannot send. The ledger stores the hash of the id.
//
// A page is a function of this package and a template with its name. Package login lets browsers in. Package feed
// notifies open pages of changes. Packages chart, format, list and link draw and format the content of pages; they do
// not handle requests.
//
// The reference of the API at /docs is a page of the OpenAPI document, and needs no login.
//
// Pages load nothing from other sites. Styles and scripts are files of this package, and the content security policy
// forbids everything else. With JavaScript, a page follows the ledger: a server-sent event says that something on the
// page has changed, but not what. The page then reloads itself and replaces its regions. So only templates render
// pages, and a slow browser needs a flag and no queue.
package dashboard
