//go:build linux

package main

import (
	"fmt"
	"testing"
)

// keptFor makes a command that has ended with as many bytes.
func keptFor(t *testing.T, k *keeper, id string, bytes int64) {
	t.Helper()
	stream, err := newSpoolStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.file.Truncate(bytes); err != nil {
		t.Fatal(err)
	}
	c := &keptCommand{id: id, ended: make(chan struct{})}
	c.streams = append(c.streams, stream.file)
	if !k.add(c) {
		t.Fatalf("command %s is known already", id)
	}
	k.end(c)
}

func TestTheOldestCommandsAreForgotten(t *testing.T) {
	t.Parallel()
	k := &keeper{kept: make(map[string]*keptCommand)}
	for i := range keptEnded + 2 {
		keptFor(t, k, fmt.Sprint(i), 1)
	}
	if k.kept["0"] != nil || k.kept["1"] != nil || k.kept["2"] == nil || len(k.ended) != keptEnded {
		t.Errorf("%d commands are kept", len(k.ended))
	}
	keptFor(t, k, "large", keptBytes+1)
	if len(k.kept) != 1 || k.kept["large"] == nil {
		t.Errorf("beside one that alone is too large, %d are kept", len(k.kept)-1)
	}
}

func TestWhatIsKeptOfAStreamIsLimited(t *testing.T) {
	t.Parallel()
	s, err := newSpoolStream()
	if err != nil {
		t.Fatal(err)
	}
	s.limit = 5
	for _, piece := range []string{"abc", "def", "ghi"} {
		if n, err := s.Write([]byte(piece)); n != 3 || err != nil {
			t.Fatal(n, err)
		}
	}
	kept := make([]byte, 9)
	n, _ := s.file.ReadAt(kept, 0) // the file is shorter
	total, dropped := s.counts()
	if string(kept[:n]) != "abcde" || total != 9 || !dropped {
		t.Errorf("%q is kept of %d bytes, dropped: %v", kept[:n], total, dropped)
	}
}
