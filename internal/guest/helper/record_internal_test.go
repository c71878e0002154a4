package helper

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestAnInputIsSentAgainFromItsBeginning(t *testing.T) {
	from, to := io.Pipe()
	r := newRecord(from)
	first := r.again()
	go func() { // ends with the input
		_, _ = io.WriteString(to, "abc") // the reader compares
		_, _ = io.WriteString(to, "def")
		_ = to.Close() // never fails
	}()
	b := make([]byte, 2)
	if n, err := first.Read(b); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	left := make(chan error, 1)
	go func() { // reads one piece, which must not be lost
		_, err := first.Read(b)
		left <- err
	}()
	if got, err := io.ReadAll(r.again()); string(got) != "abcdef" || err != nil || !r.whole() {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-left; err != nil && !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestALongInputIsNotSentAgainCut(t *testing.T) {
	r := newRecord(strings.NewReader(strings.Repeat("x", maxRecorded+1)))
	if _, err := io.ReadAll(r.again()); err != nil || r.whole() {
		t.Errorf("%v, whole: %t", err, r.whole())
	}
	if _, err := io.ReadAll(r.again()); !errors.Is(err, errNotKept) {
		t.Errorf("the second reading ends with %v", err)
	}
}
