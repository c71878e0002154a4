// Command echo writes what it reads. It runs in sandboxes whose image has no such program. It does nothing else,
// because its start is part of each measured command.
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
