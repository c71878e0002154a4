package dockerapi

import (
	"io"
	"net/url"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/docker/docker/pkg/stdcopy"
)

// Finish reads a stream of messages to its end. It returns the error that the engine reports in the stream.
func Finish(messages io.Reader) error {
	return jsonmessage.DisplayJSONMessagesStream(messages, io.Discard, 0, false, nil)
}

// StdCopy splits the output of a process without a terminal into its two streams.
func StdCopy(stdout, stderr io.Writer, output io.Reader) (written int64, err error) {
	return stdcopy.StdCopy(stdout, stderr, output)
}

// Filter is one condition of a list.
func Filter(key, value string) filters.KeyValuePair { return filters.Arg(key, value) }

// NewFilters joins conditions.
func NewFilters(of ...filters.KeyValuePair) Filters { return filters.NewArgs(of...) }

// VersionAtLeast reports whether an API version of the engine is at least another one.
func VersionAtLeast(version, least string) bool { return versions.GreaterThanOrEqualTo(version, least) }

// IsConnectionFailed reports whether there was no connection to the engine.
func IsConnectionFailed(err error) bool { return client.IsErrConnectionFailed(err) }

// ParseHostURL splits the address of an engine.
func ParseHostURL(host string) (*url.URL, error) { return client.ParseHostURL(host) }
