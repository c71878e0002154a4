package oidc

import (
	"net/http"
	"strings"
)

// maxAnswer limits an answer of the provider, in bytes.
const maxAnswer = 1 << 20

// newClient returns the client for requests to the provider. It follows no redirect, which could carry the client
// secret to another host.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // net/http documents the type
	return &http.Client{
		Timeout:       callTimeout,
		Transport:     bounded{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bounded limits the answers of a transport to maxAnswer.
type bounded struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.Transport.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// short returns the beginning of a text from outside, on one line, for errors and logs.
func short(text string) string {
	const most = 200
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
