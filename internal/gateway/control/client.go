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
)

// Client tells a gateway what to do. It is safe for concurrent use.
type Client struct{ http *http.Client }

// NewClient returns a client whose connections to the control socket come from dial. They are kept
// for a while.
func NewClient(dial func(context.Context) (net.Conn, error)) *Client {
	return &Client{&http.Client{Transport: &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxIdleConns:    4,
		IdleConnTimeout: time.Minute,
	}}}
}

// Close closes the connections that wait for a next use.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// ErrRefused marks what the gateway understood and does not do.
var ErrRefused = errors.New("the gateway refuses")

// Apply changes the settings.
func (c *Client) Apply(ctx context.Context, s Settings) error {
	return c.call(ctx, http.MethodPut, "settings", s, nil)
}

// Add lets a sandbox out, or changes its agent.
func (c *Client) Add(ctx context.Context, s Sandbox) error {
	return c.call(ctx, http.MethodPut, "sandboxes/"+url.PathEscape(s.ID), s, nil)
}

// Remove cuts a sandbox off for good. Absent is success.
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "sandboxes/"+url.PathEscape(id), nil, nil)
}

// Status asks what the gateway is doing.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, "status", nil, &s)
	return s, err
}

// Attempts returns the oldest attempts after a position, none when there are none yet.
func (c *Client) Attempts(ctx context.Context, after audit.Position) ([]audit.Entry, error) {
	var a Attempts
	err := c.call(ctx, http.MethodGet, fmt.Sprintf("attempts?run=%d&line=%d", after.Run, after.Line), nil, &a)
	return a.Entries, err
}

// maxAnswer bounds an answer, in bytes. The longest has attempts.
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
