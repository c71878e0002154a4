//go:build linux

package main

import (
	"fmt"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/output"
)

// keptFor makes a command that has ended with as many bytes.
func keptFor(t *testing.T, k *register, id string, bytes int64) {
	t.Helper()
	stream, err := output.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.File.Truncate(bytes); err != nil {
		t.Fatal(err)
	}
	c := &keptCommand{id: id, ended: make(chan struct{})}
	c.streams = append(c.streams, stream.File)
	if !k.add(c) {
		t.Fatalf("command %s is known already", id)
	}
	k.end(c)
}

func TestTheOldestCommandsAreForgotten(t *testing.T) {
	t.Parallel()
	k := &register{kept: make(map[string]*keptCommand)}
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
