//go:build linux

// Package shellstate learns which directory and variables a command line leaves behind.
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

// A command line is run by the image's shell. When that ends, a trap has it run this program once more,
// as its child, which therefore has the shell's directory and exported variables for its own: no shell's
// way of quoting has to be understood. It writes them to a pipe of the helper. What it writes may be
// forged by the command line, which gains nothing by that: it may set what it likes.

const (
	Path = "/bin/sh"
	// FirstDescriptor is above those that shells let scripts name.
	FirstDescriptor = 10
	// MaxRaw bounds what is read of a shell's state, in bytes.
	MaxRaw = 128 << 10
)

// shellOwn are variables that shells keep for themselves.
var shellOwn = map[string]bool{"_": true, "PWD": true, "OLDPWD": true, "SHLVL": true}

// Collector is where the state of one command line is collected.
type Collector struct {
	raw     bytes.Buffer
	tooMuch bool
	Began   []string // the environment of the shell
}

// Write never fails: the rest is thrown away.
func (s *Collector) Write(p []byte) (int, error) {
	room := min(len(p), MaxRaw-s.raw.Len())
	_, _ = s.raw.Write(p[:room]) // memory does not fail
	s.tooMuch = s.tooMuch || room < len(p)
	return len(p), nil
}

// Raw returns what the shell has told, for another Collector to be written.
func (s *Collector) Raw() []byte {
	if s.tooMuch {
		return append(s.raw.Bytes(), 0)
	}
	return s.raw.Bytes()
}

// Command returns the arguments of a shell that runs a line and then tells of its state on a
// descriptor that it inherits, which is of the given pipe. The trap stands on the line itself, so that the shell counts
// lines right.
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
	return []string{"sh", "-c", fmt.Sprintf("trap '%s state -descriptor %d -pipe %d' EXIT; %s", self, descriptor, s.Ino, line)}, nil
}

// Inherited gives a file a descriptor above those that shells let scripts name, which children inherit.
// Its caller closes it.
func Inherited(f *os.File) (int, error) {
	return unix.FcntlInt(f.Fd(), unix.F_DUPFD, FirstDescriptor)
}

// Tell writes this process's directory and variables to the descriptor, if that is the given pipe:
// the command line may have put something else in its place, and values may be secret.
func Tell(descriptor int, pipe uint64) error {
	var s unix.Stat_t
	if err := unix.Fstat(descriptor, &s); err != nil || s.Ino != pipe || s.Mode&unix.S_IFMT != unix.S_IFIFO {
		return errors.New("the descriptor for the shell's state was closed or is another file: what was set is not kept")
	}
	cwd, err := syscall.Getwd() // os.Getwd believes the variable PWD
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

// State returns what the shell has told, as against what it began with; nil when it told nothing. workingDirectory
// resolves a directory, or refuses it.
func (s *Collector) State(workingDirectory func(string) (string, error)) *wire.ShellState {
	if s.raw.Len() == 0 {
		return nil
	}
	if s.tooMuch {
		return &wire.ShellState{Problem: fmt.Sprintf("there is more than %d bytes of it", MaxRaw)}
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

// fittingState is a state that the result has room for.
func fittingState(state *wire.ShellState) *wire.ShellState {
	b, err := json.Marshal(state)
	if err == nil && len(b) > wire.MaxShellState {
		err = fmt.Errorf("what has changed is %d bytes, and %d are kept at most", len(b), wire.MaxShellState)
	}
	if err != nil {
		return &wire.ShellState{Problem: err.Error()}
	}
	return state
}

var errNoState = errors.New("the shell's state is not complete, or something else has written to its descriptor")

// parseState takes apart what Tell has written: texts that end with NUL, of which the last is empty.
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

// variables returns an environment by name.
func variables(environ []string) map[string]string {
	vars := make(map[string]string, len(environ))
	for _, v := range environ {
		if name, value, ok := strings.Cut(v, "="); ok {
			vars[name] = value
		}
	}
	return vars
}

// changesOf returns what differs between the beginning and the end of a shell, but for what is its own and
// what is no text, which an engine takes none of.
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
