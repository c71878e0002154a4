// Package recording records a client's requests to Cloudflare's API, so that two clients can be compared. Names replace
// all values that differ from run to run, and only requests of a deployment are kept.
package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"regexp"
	"strings"
	"sync"
)

// Request is one request for a change.
type Request struct {
	// Method and Path are those of the request, without the account, and with names in place of ids.
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query,omitempty"`
	// Body is the JSON body. For an upload it is the description, and Parts are the headers of the other parts.
	Body  any      `json:"body,omitempty"`
	Parts []string `json:"parts,omitempty"`
}

// Recorder passes requests on to a handler and records them.
type Recorder struct {
	// To answers the requests.
	To http.Handler
	// Names replace their keys: the names of the account, its Workers and images.
	Names map[string]string

	mu  sync.Mutex // guards all
	all []Request
}

var (
	uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	hex  = regexp.MustCompile(`\b[0-9a-f]{32}\b`)
)

// ServeHTTP implements http.Handler.
func (c *Recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Method != http.MethodGet {
		if err := c.keep(r, body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.To.ServeHTTP(w, r)
}

// Take returns the requests since the last call.
func (c *Recorder) Take() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return all
}

func (c *Recorder) keep(r *http.Request, body []byte) error {
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/client/v4/accounts/"), "/")
	kept := Request{Method: r.Method, Path: c.named("/" + path), Query: r.URL.RawQuery}
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case len(body) == 0 || r.Method == http.MethodDelete: // the body of a deletion has no meaning
		err = nil
	case err == nil && kind == "multipart/form-data":
		kept.Body, kept.Parts, err = c.upload(body, parameters["boundary"])
	default: // wrangler sends some of its JSON as text
		kept.Body, err = c.decode(body)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, kept)
	return nil
}

// named replaces values that differ from run to run by names.
func (c *Recorder) named(s string) string {
	for from, to := range c.Names {
		s = strings.ReplaceAll(s, from, to)
	}
	return hex.ReplaceAllString(uuid.ReplaceAllString(s, "{uuid}"), "{id}")
}

func (c *Recorder) decode(body []byte) (v any, err error) {
	err = json.Unmarshal([]byte(c.named(string(body))), &v)
	return v, err
}

func (c *Recorder) upload(body []byte, boundary string) (description any, parts []string, err error) {
	for form := multipart.NewReader(bytes.NewReader(body), boundary); ; {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return description, parts, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if part.FormName() != "metadata" {
			parts = append(parts, part.Header.Get("Content-Disposition")+"; "+part.Header.Get("Content-Type"))
			continue
		}
		content, err := io.ReadAll(part)
		if err == nil {
			description, err = c.decode(content)
		}
		if err != nil {
			return nil, nil, err
		}
	}
}
