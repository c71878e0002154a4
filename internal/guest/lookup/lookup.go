// Package lookup finds programs and files that a sandbox's image lacks.
package lookup

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// Command is the guest's command that runs Main.
const Command = "lookup"

// Separator separates alternative paths.
const Separator = ":"

// Main writes each unmet need as a line. A need is the name of a program that PATH must have, or absolute paths joined
// by Separator. At least one of the paths must be a readable file. Main runs as the user with the needs.
func Main(needs []string, w io.Writer) error {
	for _, need := range needs {
		if met(need) {
			continue
		}
		if _, err := fmt.Fprintln(w, need); err != nil {
			return err
		}
	}
	return nil
}

func met(need string) bool {
	if !strings.HasPrefix(need, "/") {
		_, err := exec.LookPath(need)
		return err == nil
	}
	for path := range strings.SplitSeq(need, Separator) {
		if f, err := os.Open(path); err == nil { // #nosec G304 -- it only tells whether the file can be read
			_ = f.Close() // only read
			return true
		}
	}
	return false
}
