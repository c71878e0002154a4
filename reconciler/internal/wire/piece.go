package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// AppendPiece appends the line of a piece of a stream: an ExecInput if stream is "", otherwise an ExecOutput. Binary
// pieces are many and long, and encoding/json would copy each several times.
func AppendPiece(line []byte, stream string, piece []byte) ([]byte, error) {
	line = append(line, '{')
	if stream != "" {
		line = append(line, `"stream":"`+stream+`",`...)
	}
	line = append(line, `"data":`...)
	if utf8.Valid(piece) {
		text, err := json.Marshal(string(piece))
		return append(append(line, text...), "}\n"...), err
	}
	line = base64.StdEncoding.AppendEncode(append(line, '"'), piece)
	return append(line, `","encoding":"`+Base64+"\"}\n"...), nil
}

// The lines of binary pieces, split at their quotes. A part that is "" may have any value.
var (
	inputForm  = strings.Split(`{"data":"","encoding":"base64"}`, `"`)
	outputForm = strings.Split(`{"stream":"","data":"","encoding":"base64"}`, `"`)
)

// ReadPiece reads the line of a binary piece, and decodes it into the space of reused. ok is false if the line is
// another one, is invalid, or has escapes or another order of fields: encoding/json then reads it.
func ReadPiece(line, reused []byte) (stream string, piece []byte, ok bool) {
	parts := bytes.SplitN(line, []byte{'"'}, len(outputForm)+1)
	form := inputForm
	if len(parts) > len(inputForm) {
		form = outputForm
	}
	if len(parts) != len(form) {
		return "", nil, false
	}
	for i, part := range parts {
		if i%2 == 0 { // outside of strings
			part = bytes.Trim(part, " \t\r\n")
		}
		if form[i] != "" && string(part) != form[i] {
			return "", nil, false
		}
	}
	if len(parts) == len(outputForm) {
		if stream = string(parts[3]); !isStream(stream) {
			return "", nil, false
		}
	}
	data := parts[len(parts)-6]
	piece, err := base64.StdEncoding.AppendDecode(reused[:0], data)
	if err != nil || bytes.ContainsAny(data, "\r\n") { // base64 ignores line ends, which no JSON string may have
		return "", nil, false
	}
	return stream, piece, true
}

func isStream(name string) bool { return name == "stdout" || name == "stderr" || name == PartFiles }
