package client

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
)

const (
	inputPiece = 16 << 10  // bytes of standard input in a line
	shortInput = 128 << 10 // bytes
)

// withInput returns a request with the lines of its standard input. If that is short and in memory, the length of the
// body is known, and the reconciler keeps the connection.
func withInput(request []byte, stdin io.Reader) (io.Reader, error) {
	length := shortInput + 1
	switch known := stdin.(type) {
	case *bytes.Reader:
		length = known.Len()
	case *bytes.Buffer:
		length = known.Len()
	case *strings.Reader:
		length = known.Len()
	}
	if length > shortInput {
		return io.MultiReader(bytes.NewReader(request), &inputLines{stdin: stdin, piece: make([]byte, inputPiece)}), nil
	}
	content := make([]byte, length)
	if _, err := io.ReadFull(stdin, content); err != nil {
		return nil, err
	}
	request = slices.Grow(request, 2*length)
	for piece := range slices.Chunk(content, inputPiece) {
		request = wire.AppendInput(request, piece)
	}
	return bytes.NewReader(request), nil
}

// inputLines converts standard input to lines of a request.
type inputLines struct {
	stdin io.Reader
	piece []byte // reused
	line  []byte // reused
	rest  []byte // of line
}

func (i *inputLines) Read(b []byte) (int, error) {
	if len(i.rest) == 0 {
		n, err := i.stdin.Read(i.piece)
		if n == 0 {
			return 0, err
		}
		i.line = wire.AppendInput(i.line[:0], i.piece[:n])
		i.rest = i.line
	}
	n := copy(b, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}
