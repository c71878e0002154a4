// Package link names the paths of the dashboard's pages.
package link

import (
	"net/url"
)

// Root is the root path of the dashboard.
const Root = "/ui/"

// Lease returns the path of the page of a lease, or of a page below it.
func Lease(id string, below ...string) string { return pathOf("leases/", id, below) }

// Environment returns the path of the page of an environment, or of a page below it.
func Environment(id string, below ...string) string { return pathOf("environments/", id, below) }

func pathOf(kind, id string, below []string) string {
	p := Root + kind + url.PathEscape(id)
	for _, b := range below {
		p += "/" + url.PathEscape(b)
	}
	return p
}

// To returns the path of a page with parameters. It skips empty ones.
func To(path string, parameters ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			q.Set(parameters[i], parameters[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
