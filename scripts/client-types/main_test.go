package main

import (
	"os"
	"testing"
)

func TestTheClientNamesEveryTypeThatItsCallersMeet(t *testing.T) {
	t.Parallel()
	want, err := generate("../../internal/sandbox")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../reconciler/client/types.go")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("reconciler/client/types.go is not what the domain is now: run go generate ./reconciler/client")
	}
}
