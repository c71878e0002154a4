//go:build linux

// Package shellstate determines the directory and the variables that a shell line leaves behind.
package shellstate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// The image's shell runs the line. At its end, a trap runs this program as the shell's child. The child inherits the
// shell's directory and exported variables, so the quoting rules of shells do not matter. It writes them to a pipe of
// the helper. The line could forge this, but gains nothing: it may set any variable.

const (
	Path = "/bin/sh"
	// MaxRaw limits the report of a shell, in bytes.
	MaxRaw = 128 << 10
)

// shellOwn are variables that shells maintain themselves.
var shellOwn = map[string]bool{"_": true, "PWD": true, "OLDPWD": true, "SHLVL": true}

// Collector collects the state of one line.
type Collector struct {
	raw     bytes.Buffer
	tooMuch bool
	Began   []string // initial environment of the shell
}

// Write never fails: it discards bytes beyond the limit.
func (s *Collector) Write(p []byte) (int, error) {
	room := min(len(p), MaxRaw-s.raw.Len())
	_, _ = s.raw.Write(p[:room]) // writing to memory never fails
	s.tooMuch = s.tooMuch || room < len(p)
	return len(p), nil
}

// Raw returns the shell's report, to be written to another Collector.
func (s *Collector) Raw() []byte {
	if s.tooMuch {
		return append(s.raw.Bytes(), 0)
	}
	return s.raw.Bytes()
}

// Command returns the arguments of a shell that runs a line and then reports its state on an inherited
// descriptor of the given pipe. The trap is on the same line as the command, so that the shell's line numbers
// are right.
func Command(line string, descriptor int, pipe *os.File) ([]string, error) {
	info, err := pipe.Stat()
	if err != nil {
		return nil, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, errors.New("the shell's pipe has no inode")
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return []string{
		"sh", "-c", fmt.Sprintf("trap '%s state -descriptor %d -pipe %d' EXIT; %s", self, descriptor, s.Ino, line),
	}, nil
}

// Tell writes this process's directory and variables to the descriptor, if it is the given pipe: the line may
// have replaced it, and values may be secret.
func Tell(descriptor int, pipe uint64) error {
	var s unix.Stat_t
	if err := unix.Fstat(descriptor, &s); err != nil || s.Ino != pipe || s.Mode&unix.S_IFMT != unix.S_IFIFO {
		return errors.New("the descriptor for the shell's state was closed or replaced: variables and directory are not kept")
	}
	cwd, err := syscall.Getwd() // os.Getwd trusts the variable PWD
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, text := range append([]string{cwd}, os.Environ()...) {
		b.WriteString(text)
		b.WriteByte(0)
	}
	b.WriteByte(0)
	f := os.NewFile(uintptr(descriptor), "state")
	_, err = f.Write(b.Bytes())
	return errors.Join(err, f.Close())
}

// State returns what the shell changed, nil if it reported nothing. workingDirectory resolves a directory, or
// refuses it.
func (s *Collector) State(workingDirectory func(string) (string, error)) *wire.ShellState {
	if s.raw.Len() == 0 {
		return nil
	}
	if s.tooMuch {
		return &wire.ShellState{Problem: fmt.Sprintf("the state exceeds %d bytes", MaxRaw)}
	}
	cwd, ended, err := parseState(s.raw.Bytes())
	if err != nil {
		return &wire.ShellState{Problem: err.Error()}
	}
	state := changesOf(variables(s.Began), ended)
	if dir, err := workingDirectory(cwd); err == nil {
		state.Cwd = dir
	} else {
		state.Outside = cwd
	}
	return fittingState(state)
}

// fittingState returns a state that fits into the result.
func fittingState(state *wire.ShellState) *wire.ShellState {
	b, err := json.Marshal(state)
	if err == nil && len(b) > wire.MaxShellState {
		err = fmt.Errorf("the changes have %d bytes, but at most %d are kept", len(b), wire.MaxShellState)
	}
	if err != nil {
		return &wire.ShellState{Problem: err.Error()}
	}
	return state
}

var errNoState = errors.New("the shell's state is incomplete, or another program wrote to its descriptor")

// parseState parses the output of Tell: NUL-terminated strings, the last one empty.
func parseState(raw []byte) (cwd string, vars map[string]string, err error) {
	text, whole := strings.CutSuffix(string(raw), "\x00\x00")
	if !whole {
		return "", nil, errNoState
	}
	all := strings.Split(text, "\x00")
	if !strings.HasPrefix(all[0], "/") || !utf8.ValidString(all[0]) {
		return "", nil, errNoState
	}
	for _, v := range all[1:] {
		if i := strings.IndexByte(v, '='); i <= 0 {
			return "", nil, errNoState
		}
	}
	return all[0], variables(all[1:]), nil
}

// variables converts an environment to a map.
func variables(environ []string) map[string]string {
	vars := make(map[string]string, len(environ))
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			vars[name] = value
		}
	}
	return vars
}

// changesOf returns the differences between the start and the end of a shell, without the shell's own
// variables and without values that are not text, which an engine does not accept.
func changesOf(began, ended map[string]string) *wire.ShellState {
	state := &wire.ShellState{Set: make(map[string]string)}
	for name, value := range ended {
		if before, had := began[name]; !shellOwn[name] && (!had || before != value) && utf8.ValidString(name+value) {
			state.Set[name] = value
		}
	}
	for name := range began {
		if _, has := ended[name]; !has && !shellOwn[name] {
			state.Unset = append(state.Unset, name)
		}
	}
	slices.Sort(state.Unset)
	return state
}
