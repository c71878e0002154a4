package dockertest

import (
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
)

var versionPrefix = regexp.MustCompile(`^/v[0-9.]+`)

// Clone answers like another machine with the engine's id, on which nothing exists. It makes no changes, and calls
// changed for each requested change.
func Clone(changed func(what string)) faulttest.Fault {
	return func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		reply := func(status int, body string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body) // a client that has gone needs no answer
		}
		path := versionPrefix.ReplaceAllString(r.URL.Path, "")
		switch {
		case path == "/info", path == "/version", path == "/_ping":
			pass(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			changed(r.Method + " " + path)
			reply(http.StatusInternalServerError, `{"message":"this machine is read-only"}`)
		case path == "/events":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush() // as above
			<-r.Context().Done()
		case path == "/volumes":
			reply(http.StatusOK, `{"Volumes":[],"Warnings":null}`)
		case strings.HasSuffix(path, "/json") && strings.Count(path, "/") == 2, path == "/networks":
			reply(http.StatusOK, `[]`)
		default:
			reply(http.StatusNotFound, `{"message":"No such object"}`)
		}
	}
}
