// Package terminal detects what an output can show, and shows progress on terminals.
package terminal

import (
	"bytes"
	"io"
	"os"

	"golang.org/x/term"
)

// Frame collects what a command prints for a screen.
type Frame struct {
	bytes.Buffer
	// Screen is the output that the frame is printed to.
	Screen io.Writer
}

// terminalOf returns the terminal behind an output, nil if there is none.
func terminalOf(w io.Writer) *os.File {
	if f, ok := w.(*Frame); ok {
		w = f.Screen
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// Is reports whether an output goes to a terminal.
func Is(w io.Writer) bool { return terminalOf(w) != nil }

// Width returns the number of columns of a terminal, 0 for another output.
func Width(w io.Writer) int {
	f := terminalOf(w)
	if f == nil {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// InColour reports whether output to w is coloured: w is a capable terminal, and NO_COLOR (https://no-color.org)
// is not set.
func InColour(w io.Writer) bool {
	return Is(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
