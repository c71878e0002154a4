package dockerapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/docker/docker/client"
)

// unreachable is the error of a failed connection to an engine.
type unreachable struct {
	host string
	err  error
}

// Error omits the cause. The client replaces errors with the texts of some causes, and asks whether the daemon is
// running.
func (u *unreachable) Error() string { return "no connection to the Docker engine at " + u.host }

func (u *unreachable) Unwrap() error { return u.err }

// Explain returns the error of a call. For a failed connection, it adds the host, the cause and what to try.
func Explain(err error) error {
	var u *unreachable
	if !errors.As(err, &u) {
		return err
	}
	return fmt.Errorf("%w (%w). Start the engine, choose another (docker.host or docker.context, of a reconciler "+
		"--docker-host or --docker-context), or give this user access to the socket", u, u.err)
}

// IsUnreachable reports whether there was no connection to the engine. Then the engine received nothing.
func IsUnreachable(err error) bool { return errors.As(err, new(*unreachable)) }

// explain makes the client's connection errors unreachable errors, for Explain.
func (e endpoint) explain(c *client.Client) error {
	transport, ok := c.HTTPClient().Transport.(*http.Transport)
	if !ok || transport.DialContext == nil {
		return errors.New("the client's transport has no dialer")
	}
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, &unreachable{cmp.Or(e.host, client.DefaultDockerHost), err}
		}
		return conn, nil
	}
	return nil
}
