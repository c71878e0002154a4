package channel

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Streams are what an operation reads and writes, on the client's side. Nil readers are empty, nil writers discard.
type Streams struct {
	// Stdin is read in a goroutine of its own, which ends with the first Read that returns after the operation. A reader
	// that may block for ever belongs to the caller: neither Call nor Client.Close waits for it.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Begins gets the offset of the next byte of Stdout when the guest no longer keeps what came before.
	Begins func(offset int64) error
}

// Dial opens a carrier to one sandbox. Only Read, Write and Close of the carrier are used. Close must end a Read and a
// Write under way, and may be called more than once.
type Dial func(ctx context.Context) (net.Conn, error)

// ErrLost means that the session ended before the result came: the guest, or its broker, started anew. Whether the
// operation was carried out is not known; repeating it with its id is safe.
var ErrLost = errors.New("the session with the sandbox was lost")

// Lost is an ErrLost of an operation.
type Lost struct {
	// Life is that of the sandbox which was asked, for Request.Life; "" where the guest says none.
	Life  string
	cause error
}

// Error implements error.
func (e *Lost) Error() string { return ErrLost.Error() + ": " + e.cause.Error() }

// Unwrap makes it an ErrLost, with a cause.
func (e *Lost) Unwrap() []error { return []error{ErrLost, e.cause} }

// ErrGone is for a Dial to wrap: there is no sandbox to dial, and dialing again changes nothing.
var ErrGone = errors.New("the sandbox is gone")

// ErrClosed means that the client was closed.
var ErrClosed = errors.New("the channel was closed")

// Handler carries out operations, on the guest's side. in is the operation's input; out takes its output. ctx ends when
// the client gives the operation up or its session is lost. The result is sent after what out has taken.
//
// A changing operation that returns a problem after ctx ended may be repeated, see Journal.Forget. So a handler whose change
// was made returns no problem.
type Handler func(ctx context.Context, r Request, in io.Reader, out *wire.Writer) wire.Result
