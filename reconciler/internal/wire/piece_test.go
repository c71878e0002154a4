package wire_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/strictjson"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
)

// pieceOf reads a line with encoding/json. ok is false if it is anything but a piece of binary data.
func pieceOf(line []byte) (stream string, piece []byte, ok bool) {
	var out wire.ExecOutput
	if problems := strictjson.DecodeNonNull(line, &out); problems != nil || out.Encoding != wire.Base64 {
		return "", nil, false
	}
	piece, err := wire.Decode(out.Data, out.Encoding)
	return out.Stream, piece, err == nil && out.Result == nil && out.Error == nil
}

// FuzzPiecesAreReadAsByEncodingJSON also checks that the lines that this project's clients send are read fast.
func FuzzPiecesAreReadAsByEncodingJSON(f *testing.F) {
	for _, line := range []string{
		`{"data":"/w==","encoding":"base64"}`,
		` { "stream" : "stdout" , "data" : "/w==" , "encoding" : "base64" } `,
		`{"stream":"std\u006fut","data":"/w==","encoding":"base64"}`,
		`{"stream":"stdout","data":"","encoding":"base64"}`,
		`{"data":"/w==","data":"AA==","encoding":"base64"}`,
		`{"data":"/w=","encoding":"base64"}`,
		"{\"data\":\"/\rw==\",\"encoding\":\"base64\"}",
		"{\v\"data\":\"/w==\",\"encoding\":\"base64\"}",
		`{"data":"/w==","encoding":"base64"}{}`,
		`{"encoding":"base64","data":"/w=="}`,
		`{"result":{"exit_code":0}}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if stream, piece, ok := wire.ReadPiece(text, make([]byte, 1, 8)); ok {
			wantStream, want, valid := pieceOf(text)
			if !valid || stream != wantStream || !bytes.Equal(piece, want) {
				t.Errorf("%q is read as %q of %q, want %v, %q of %q", text, piece, stream, valid, want, wantStream)
			}
		}
		input := wire.AppendInput([]byte("before"), text)
		if stream, piece, ok := wire.ReadPiece(input[len("before"):], nil); !ok || stream != "" || !bytes.Equal(piece, text) {
			t.Errorf("%q is read as %v, %q of %q", input, ok, piece, stream)
		}
		binary := append([]byte{0xff}, text...)
		line, err := wire.AppendOutput([]byte("before"), "stdout", binary)
		if err != nil {
			t.Fatal(err)
		}
		stream, piece, ok := wire.ReadPiece(line[len("before"):], nil)
		if !ok || stream != "stdout" || !bytes.Equal(piece, binary) {
			t.Errorf("%q is read as %v, %q of %q", line, ok, piece, stream)
		}
		if line, err = wire.AppendOutput(nil, "stderr", text); err != nil {
			t.Fatal(err)
		}
		var out wire.ExecOutput
		if err := json.Unmarshal(line, &out); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if piece, err := wire.Decode(out.Data, out.Encoding); err != nil || !bytes.Equal(piece, text) || out.Stream != "stderr" {
			t.Errorf("%q is %q of %q: %v", line, piece, out.Stream, err)
		}
	})
}
