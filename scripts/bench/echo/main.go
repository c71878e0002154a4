// Command echo writes what it reads. It runs in sandboxes of an image that has no other program for that, and does
// nothing else, since its own start is a part of each command that is measured.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}
