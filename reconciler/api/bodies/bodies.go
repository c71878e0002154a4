// Package bodies reads the bodies of requests, and writes those of responses in JSON.
package bodies

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/strictjson"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
)

// Limits of request bodies in memory, in bytes.
const (
	// MaxJSON limits a JSON request, which may hold the standard input of a command.
	MaxJSON = 8 << 20
	// ShortInput is the length up to which a request with standard input, or with files, is read before it is served.
	ShortInput = 256 << 10
	// maxInput limits one line of standard input.
	maxInput = 1 << 20
)

// ReadAll reads a body of at most limit bytes.
func ReadAll(w http.ResponseWriter, from io.ReadCloser, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, from, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, problem.TooLarge("the body", tooLarge.Limit)
	case err != nil:
		return nil, problem.HTTP(http.StatusRequestTimeout, "reading the request body: "+err.Error())
	}
	return body, nil
}

// MediaType returns the media type of a request's body, "" for none or a malformed one.
func MediaType(r *http.Request) string {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// Accepts reports whether the request names a content type in Accept.
func Accepts(r *http.Request, contentType string) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if t, _, err := mime.ParseMediaType(part); err == nil && t == contentType {
			return true
		}
	}
	return false
}

// StrictJSON decodes one value. It rejects what the sender cannot have meant; see package strictjson. The error names
// the fields.
func StrictJSON(data []byte, v any) error { return problem.BadFields(strictjson.Decode(data, v)) }

// WriteJSON sends a value that always marshals.
func WriteJSON(w http.ResponseWriter, v any) { WriteStatusJSON(w, http.StatusOK, v) }

// WriteStatusJSON sends a value that always marshals, with a status.
func WriteStatusJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}

// TakeOrStream reads a body of at most short bytes into memory. Of a longer body, or one of unknown length, the handler
// may read a part, and respond before its end; over HTTP/1, the connection then closes with the response, because the
// unread rest would precede the next request.
func TakeOrStream(w http.ResponseWriter, r *http.Request, short int64) (taken bool, err error) {
	if r.ContentLength == 0 {
		return true, nil
	}
	if r.ContentLength > 0 && r.ContentLength <= short {
		body, err := ReadAll(w, r.Body, short)
		r.Body = io.NopCloser(bytes.NewReader(body))
		return true, err
	}
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	if err := http.NewResponseController(w).EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return false, err
	}
	return false, nil
}
