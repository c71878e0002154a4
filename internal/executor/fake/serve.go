package fake

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Served is the answer of a command that listens: the request, as JSON.
type Served struct {
	Method string      `json:"method"`
	Target string      `json:"target"`
	Host   string      `json:"host"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
}

// Connect implements driver.ProcessRunner. A listener answers one request with a Served. If the request asks for
// another protocol, the listener switches and echoes all bytes. It does not answer requests for /silent. It streams the
// body of requests for /echo back, and redirects requests with a redirect in their query. For early=103 in their query,
// it sends this status before its answer.
func (x *runner) Connect(ctx context.Context, h driver.Handle, port int, c driver.Connection) error {
	of, err := x.listener(ctx, OpConnect, h, port)
	if err != nil {
		return err
	}
	c.Opened()
	served := make(chan error, 1)
	go func() { served <- serve(c) }() // ends with From
	select {
	case err = <-served:
	case <-of.over:
		err = errors.New("the command ended")
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Timeout, "connection to port %d: %w", port, ctx.Err())
	}
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "connection to port %d: %w", port, err).
			WithReason(sandbox.ReasonConnectionFailed)
	}
	return nil
}

// serve answers one request.
func serve(c driver.Connection) error {
	from := bufio.NewReader(c.From)
	r, err := http.ReadRequest(from)
	if err != nil {
		return err
	}
	if to := r.URL.Query().Get("redirect"); to != "" {
		_, err := fmt.Fprintf(c.To, "HTTP/1.1 307 Temporary Redirect\r\nLocation: %s\r\nContent-Length: 0\r\n"+
			"Connection: close\r\n\r\n", to)
		return err
	}
	if early := r.URL.Query().Get("early"); early != "" {
		if _, err := fmt.Fprintf(c.To, "HTTP/1.1 %s Early\r\nSet-Cookie: of=agent\r\nLink: </x>\r\n\r\n", early); err != nil {
			return err
		}
	}
	if r.URL.Path == "/silent" {
		_, err := io.Copy(io.Discard, from)
		return err
	}
	if protocol := r.Header.Get("Upgrade"); protocol != "" {
		if _, err := fmt.Fprintf(c.To, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
			protocol); err != nil {
			return err
		}
		_, err := io.Copy(c.To, from)
		return err
	}
	if r.URL.Path == "/echo" {
		if _, err := fmt.Fprint(c.To, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"); err != nil {
			return err
		}
		_, err := io.Copy(c.To, r.Body)
		return err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	answer, err := json.Marshal(Served{r.Method, r.RequestURI, r.Host, r.Header, string(body)})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.To, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"Set-Cookie: of=agent\r\nConnection: close\r\n\r\n%s", len(answer), answer)
	return err
}
