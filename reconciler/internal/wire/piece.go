package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// AppendInput appends the line of a piece of standard input, an ExecInput. It is in base64, also if it is text: many
// pieces are long, and encoding/json would copy each several times.
func AppendInput(line, piece []byte) []byte { return appendBase64(append(line, '{'), piece) }

// AppendOutput appends the line of a piece of output, an ExecOutput. A text stays readable.
func AppendOutput(line []byte, stream string, piece []byte) ([]byte, error) {
	line = append(line, `{"stream":"`+stream+`",`...)
	if !utf8.Valid(piece) {
		return appendBase64(line, piece), nil
	}
	text, err := json.Marshal(string(piece))
	line = append(append(line, `"data":`...), text...)
	return append(line, "}\n"...), err
}

func appendBase64(line, piece []byte) []byte {
	line = base64.StdEncoding.AppendEncode(append(line, `"data":"`...), piece)
	return append(line, `","encoding":"`+Base64+"\"}\n"...)
}

// The lines of pieces in base64, split at their quotes. A part that is "" may have any value.
var (
	inputForm  = strings.Split(`{"data":"","encoding":"base64"}`, `"`)
	outputForm = strings.Split(`{"stream":"","data":"","encoding":"base64"}`, `"`)
)

// ReadPiece reads the line of a piece in base64, and decodes it into the space of reused. ok is false if the line is
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
