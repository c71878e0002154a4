// Package recording writes down what a client asks of Cloudflare's API, in a form in which two clients can be
// compared: with names in place of what differs from run to run, and only with what belongs to a deployment.
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

// Request is one request that was to change something.
type Request struct {
	// Method and Path say what, without the account, with names in place of ids.
	Method string `json:"method"`
	Path   string `json:"path"`
	Query  string `json:"query,omitempty"`
	// Body is the JSON body. That of an upload is its description, and Parts are the other parts' headers.
	Body  any      `json:"body,omitempty"`
	Parts []string `json:"parts,omitempty"`
}

// Recorder passes requests on to a handler, and keeps them.
type Recorder struct {
	// To answers.
	To http.Handler
	// Names are written in place of their keys: what the account, its Workers and images are called.
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

// Take returns what was asked since the last time.
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
	case len(body) == 0 || r.Method == http.MethodDelete: // what a deletion has for a body says nothing
		err = nil
	case err == nil && kind == "multipart/form-data":
		kept.Body, kept.Parts, err = c.upload(body, parameters["boundary"])
	default: // wrangler says of some of its JSON that it is text
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

// named puts names in place of what differs from run to run.
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
