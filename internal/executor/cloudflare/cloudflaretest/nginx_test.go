package cloudflaretest_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
)

// TestNginxHoldsRequestsBack shows that traffic that passes through nginx does not depend on full duplex.
func TestNginxHoldsRequestsBack(t *testing.T) {
	arrived := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(arrived) }))
	defer server.Close()
	url, _ := cloudflaretest.Nginx(t, cloudflaretest.NeedNginx(t), server.URL)
	body, rest := io.Pipe()
	answered := make(chan error, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Post(url, "text/plain", body)
		if err == nil {
			err = answer.Body.Close()
		}
		answered <- err
	}()
	if _, err := io.WriteString(rest, "the first half"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-arrived:
		t.Error("the request has arrived before its body is complete")
	case <-time.After(time.Second):
	}
	if err := rest.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	<-arrived
}
