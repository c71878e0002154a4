package channel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
)

// The kinds of frames of an operation's input, with the layout of carrier frames. A reader skips unknown
// kinds. A stream that ends before inputEnd was given up.
const (
	inputData   byte = 1
	inputEnd    byte = 2 // empty
	inputFailed byte = 3 // text: why the client could not read its input
)

const inputHeader = 5

// ErrInput means that the client could not read the operation's input to its end.
var ErrInput = errors.New("the client could not read the input")

func appendRequest(b, request []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(request))), request...)
}

// An input is sent in pieces. A session keeps memory for its largest piece, so only inputs of more than a megabyte have
// large ones. A large piece fills a frame of the multiplexer, which needs a quarter less CPU time.
const (
	smallPiece = inputHeader + 32<<10
	largePiece = maxMuxData
	largeInput = 1 << 20
)

var (
	smallPieces = sync.Pool{New: func() any { return new([smallPiece]byte) }}
	largePieces = sync.Pool{New: func() any { return new([largePiece]byte) }}
)

// sendInput sends everything that r returns as frames.
func sendInput(w io.Writer, r io.Reader) error {
	small := smallPieces.Get().(*[smallPiece]byte) //nolint:forcetypeassert // the pool's only type
	ended, err := sendPieces(w, r, small[:], largeInput)
	smallPieces.Put(small)
	if ended || err != nil {
		return err
	}
	large := largePieces.Get().(*[largePiece]byte) //nolint:forcetypeassert // the pool's only type
	_, err = sendPieces(w, r, large[:], math.MaxInt64)
	largePieces.Put(large)
	return err
}

// sendPieces sends what r returns as frames, each made in b, until most bytes are sent or the input has ended.
func sendPieces(w io.Writer, r io.Reader, b []byte, most int64) (ended bool, err error) {
	for sent := int64(0); sent < most; {
		n, err := r.Read(b[inputHeader:])
		if n > 0 {
			appendHead(b[:0], inputData, n)
			if _, err := w.Write(b[:inputHeader+n]); err != nil {
				return false, err
			}
			sent += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			_, err := w.Write(appendHead(nil, inputEnd, 0))
			return true, err
		case err != nil:
			text := cut(err.Error(), maxMessage)
			_, err := w.Write(append(appendHead(nil, inputFailed, len(text)), text...))
			return true, err
		}
	}
	return false, nil
}

// input reads the frames of sendInput.
type input struct {
	r    io.Reader
	left int
	err  error
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for in.left == 0 && in.err == nil {
		in.err = in.next()
	}
	if in.left == 0 {
		return 0, in.err
	}
	n, err := in.r.Read(p[:min(len(p), in.left)])
	in.left -= n
	if err != nil {
		in.err, in.left = unexpected(err), 0
	}
	if n > 0 {
		return n, nil
	}
	return 0, in.err
}

func (in *input) next() error {
	var head [inputHeader]byte
	if _, err := io.ReadFull(in.r, head[:]); err != nil {
		return unexpected(err)
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	if size > maxInput {
		return violationf("an input frame of kind %d claims %d bytes", head[0], size)
	}
	switch head[0] {
	case inputData:
		in.left = int(size)
		return nil
	case inputEnd:
		return io.EOF
	case inputFailed:
		text, err := io.ReadAll(io.LimitReader(in.r, size))
		if err != nil {
			return unexpected(err)
		}
		return fmt.Errorf("%w: %s", ErrInput, text)
	default:
		_, err := io.CopyN(io.Discard, in.r, size)
		return unexpected(err)
	}
}

// unexpected is the error of a stream that ended early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// cut shortens a text to at most n bytes of valid UTF-8.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
