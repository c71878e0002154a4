package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
)

// Client controls a gateway. It is safe for concurrent use.
type Client struct{ http *http.Client }

// NewClient returns a client that connects to the control socket with dial. It keeps idle connections for a while.
func NewClient(dial func(context.Context) (net.Conn, error)) *Client {
	return &Client{&http.Client{Transport: &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxIdleConns:    4,
		IdleConnTimeout: time.Minute,
	}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// ErrRefused marks a request that the gateway understood and refused.
var ErrRefused = errors.New("the gateway refuses")

// Apply changes the settings.
func (c *Client) Apply(ctx context.Context, s Settings) error {
	return c.call(ctx, http.MethodPut, "settings", s, nil)
}

// Add admits a sandbox or changes its agent.
func (c *Client) Add(ctx context.Context, s Sandbox) error {
	return c.call(ctx, http.MethodPut, "sandboxes/"+url.PathEscape(s.ID), s, nil)
}

// Remove removes a sandbox and cuts its connections. An absent sandbox is success.
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "sandboxes/"+url.PathEscape(id), nil, nil)
}

// Status returns the gateway's state.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "status", nil, &s)
	return s, err
}

// Attempts returns the oldest attempts after a position. It returns none if there are none yet.
func (c *Client) Attempts(ctx context.Context, after audit.Position) ([]audit.Entry, error) {
	var a Attempts
	err := c.call(ctx, http.MethodGet, fmt.Sprintf("attempts?run=%d&line=%d", after.Run, after.Line), nil, &a)
	return a.Entries, err
}

// SetLLM sets the LLM routes with their keys. A gateway that restarts has none until the next call.
func (c *Client) SetLLM(ctx context.Context, config llm.Config) error {
	return c.call(ctx, http.MethodPut, "llm", config, nil)
}

// SetCredentials sets the credentials of hosts. A gateway that restarts has none until the next call.
func (c *Client) SetCredentials(ctx context.Context, config credential.Config) error {
	return c.call(ctx, http.MethodPut, "credentials", config, nil)
}

// LLMCalls returns the oldest lines of the LLM journal after a position, at most 1000, in order. It confirms that all
// lines up to that position are recorded elsewhere, so that the gateway may delete them.
func (c *Client) LLMCalls(ctx context.Context, after audit.Position) ([]llm.Entry, error) {
	var calls Calls
	err := c.call(ctx, http.MethodGet, fmt.Sprintf("llm/calls?run=%d&line=%d", after.Run, after.Line), nil, &calls)
	return calls.Entries, err
}

// maxAnswer limits an answer, in bytes. Answers with attempts are the longest.
const maxAnswer = 8 << 20

func (c *Client) call(ctx context.Context, method, path string, body, answer any) error {
	var content io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://gateway/v1/"+path, content)
	if err != nil {
		return err
	}
	res, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("read the gateway's answer: %w", err)
	case res.StatusCode >= 300:
		return fmt.Errorf("%w (%d): %s", ErrRefused, res.StatusCode, strings.TrimSpace(string(b)))
	case answer != nil:
		return json.Unmarshal(b, answer)
	default:
		return nil
	}
}
