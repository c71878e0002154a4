package fake

import (
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// line runs a line of a shell that knows export, unset, cd, pwd, echo, exit, sleep and variables, joined by "&&" or
// ";". Words after a sleep run without waiting for it; the sleep delays only the end.
func (x *runner) line(r sandbox.ExecRequest, c *command) {
	s := shell{env: maps.Clone(r.Env), cwd: r.Cwd}
	if s.env == nil {
		s.env = make(map[string]string)
	}
	for _, part := range strings.FieldsFunc(strings.ReplaceAll(r.Shell, "&&", ";"),
		func(r rune) bool { return r == ';' }) {
		s.run(strings.Fields(os.Expand(part, func(name string) string { return s.env[name] })))
	}
	c.left = s.left(r)
	if s.sleep == 0 {
		c.end(x.now(), []byte(s.out.String()), s.code, nil)
		return
	}
	c.timer = time.AfterFunc(min(s.sleep, r.Timeout.D()), func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if s.sleep > r.Timeout.D() {
			s.code, c.left = sandbox.ExitTimeout, nil
		}
		c.end(x.now(), []byte(s.out.String()), s.code, nil)
	})
}

// shell is the state of a running shell.
type shell struct {
	env   map[string]string
	cwd   string
	out   strings.Builder
	code  int
	sleep time.Duration
}

func (s *shell) run(words []string) {
	if len(words) == 0 {
		return
	}
	arg := strings.Join(words[1:], " ")
	switch words[0] {
	case "export":
		name, value, _ := strings.Cut(arg, "=")
		s.env[name] = value
	case "unset":
		delete(s.env, arg)
	case "cd":
		if s.cwd = path.Join(s.cwd, arg); path.IsAbs(arg) {
			s.cwd = path.Clean(arg)
		}
	case "pwd":
		s.out.WriteString(s.cwd + "\n")
	case "echo":
		s.out.WriteString(arg + "\n")
	case "exit":
		s.code = len(arg) // enough to fail
	case "sleep":
		s.sleep, _ = time.ParseDuration(arg) // an invalid duration does not sleep
	default:
		s.code = 127
	}
}

// left returns the changes of the shell's state since the request.
func (s *shell) left(r sandbox.ExecRequest) *sandbox.ShellState {
	left := &sandbox.ShellState{Set: make(map[string]string)}
	if clean, err := sandbox.CleanPath(s.cwd); err == nil {
		left.Cwd = clean
	} else {
		left.Outside = s.cwd
	}
	for name, value := range s.env {
		if before, had := r.Env[name]; !had || before != value {
			left.Set[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		if _, has := s.env[name]; !has {
			left.Unset = append(left.Unset, name)
		}
	}
	return left
}
