package relay

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
)

func framed(content string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
}

func TestARequestThatCannotBeServedIsAnError(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"no operation":         `{}`,
		"an unknown operation": `{"op":"destroy","id":"a"}`,
		"no id":                `{"op":"add"}`,
		"a path for an id":     `{"op":"remove","id":"../control"}`,
		"a long id":            `{"op":"add","id":"` + strings.Repeat("a", 64) + `"}`,
		"a long wait":          `{"op":"attach","id":"a","wait":1000000000000}`,
		"no wait at all":       `{"op":"attach","id":"a","wait":-1}`,
		"no JSON":              `add a`,
		"a long file": `{"op":"add","id":"a","accounts":{"passwd":"` +
			base64.StdEncoding.EncodeToString(make([]byte, MaxAccounts+1)) + `"}}`,
	} {
		if _, err := readRequest(bytes.NewReader(framed(content))); err == nil {
			t.Errorf("%s: is accepted", name)
		}
	}
}

func TestARequestIsReadToItsEndAndNoFurther(t *testing.T) {
	t.Parallel()
	in := bytes.NewReader(append(framed(`{"op":"add","id":"a"}`), "next"...))
	if r, err := readRequest(in); err != nil || r.ID != "a" {
		t.Fatalf("read %+v, %v", r, err)
	}
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "next" {
		t.Errorf("left %q, %v", rest, err)
	}
}

// An attacker chooses the length, which has 4 bytes. The relay allocates no memory for it in advance.
func FuzzRequest(f *testing.F) {
	f.Add(framed(`{"op":"attach","id":"a","wait":1000000000}`))
	f.Add(framed(`{"op":"list"}`))
	f.Add(framed(`{"op":"add","id":"a","accounts":{"passwd":"cm9vdA==","group":""}}`))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{'})
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, content []byte) {
		in := bytes.NewReader(content)
		r, err := readRequest(in)
		if read := len(content) - in.Len(); read > 4+maxRequest {
			t.Errorf("%d bytes were read", read)
		}
		if err != nil {
			return
		}
		if r.Op != opList && (r.ID == "" || strings.ContainsAny(r.ID, "/\x00") || strings.HasPrefix(r.ID, ".")) {
			t.Errorf("the id %q is accepted", r.ID)
		}
		var again bytes.Buffer
		if err := writeMessage(&again, r); err != nil {
			t.Fatal(err)
		}
		if same, err := readRequest(&again); err != nil || fmt.Sprint(same) != fmt.Sprint(r) {
			t.Errorf("%+v comes back as %+v, %v", r, same, err)
		}
	})
}
