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

// unreachable is the error of an engine to which there is no connection.
type unreachable struct {
	host string
	err  error
}

// Error leaves the cause out: the client replaces errors that have the text of some causes, and asks whether the daemon
// is running.
func (u *unreachable) Error() string { return "no connection to the Docker engine at " + u.host }

func (u *unreachable) Unwrap() error { return u.err }

// Explain returns the error of a call. Where there was no connection, it says to which host, why, and what to try.
func Explain(err error) error {
	var u *unreachable
	if !errors.As(err, &u) {
		return err
	}
	return fmt.Errorf("%w (%w). Start the engine, choose another (docker.host or docker.context, of a reconciler "+
		"--docker-host or --docker-context), or give this user access to the socket", u, u.err)
}

// IsUnreachable reports whether there was no connection to the engine, so that it received nothing.
func IsUnreachable(err error) bool { return errors.As(err, new(*unreachable)) }

// explain makes the errors of connections ones that Explain knows.
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
