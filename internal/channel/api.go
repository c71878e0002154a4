package channel

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Streams are the input and output of an operation on the client's side. Nil readers are empty, nil writers
// discard.
type Streams struct {
	// Stdin is read in a separate goroutine. The goroutine ends with the first Read that returns after the operation. The
	// caller owns a reader that may block forever: neither Call nor Client.Close waits for it.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Begins gets the offset of the next byte of Stdout if the guest no longer keeps earlier bytes.
	Begins func(offset int64) error
}

// Dial opens a carrier to one sandbox. Only Read, Write and Close of the carrier are used. Close must end a
// current Read and Write, and may be called more than once.
type Dial func(ctx context.Context) (net.Conn, error)

// ErrLost means that the session ended before the result arrived, because the guest or its broker restarted. It is
// unknown whether the operation was carried out. Repeating it with its id is safe.
var ErrLost = errors.New("the session with the sandbox was lost")

// Lost is the ErrLost of an operation.
type Lost struct {
	// Life is the life of the sandbox that got the request, for Request.Life; "" if the guest reports none.
	Life  string
	cause error
}

// Error implements error.
func (e *Lost) Error() string { return ErrLost.Error() + ": " + e.cause.Error() }

// Unwrap makes it an ErrLost, with a cause.
func (e *Lost) Unwrap() []error { return []error{ErrLost, e.cause} }

// ErrGone is for a Dial to wrap: the sandbox no longer exists, and another dial cannot help.
var ErrGone = errors.New("the sandbox is gone")

// ErrClosed means that the client was closed.
var ErrClosed = errors.New("the channel was closed")

// Handler carries out operations on the guest's side. in is the operation's input, out receives its output.
// ctx ends when the client gives the operation up or its session is lost. The result is sent after all
// output.
//
// A changing operation that returns a problem after ctx ended may be repeated, see Journal.Forget. So a
// handler that has made its change must not return a problem.
type Handler func(ctx context.Context, r Request, in io.Reader, out *wire.Writer) wire.Result
