//go:build linux

// Package verifier is the last step before a verifier runs: this program as the verifier's user, in a sandbox whose other
// programs are stopped. It makes a directory of the verifier's own, leaves out of the variables what code of the sandbox
// can change, finds the program, and becomes it.
package verifier

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/files"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Command is the subcommand of the guest.
const Command = "verifier"

// Exit codes as shells have them.
const (
	exitCannotStart = 126
	exitNotFound    = 127
)

// Run is what a verifier runs.
type Run struct {
	// Home is the directory that is made for it.
	Home string
	Cwd  string
	// Given names the variables that its caller gave: those are passed on as they are.
	Given []string
	Args  []string
}

// NewHome returns the path of a directory that code of the sandbox cannot guess.
func NewHome() string { return "/tmp/verifier-" + sandbox.RandomIDs(sandbox.LedgerIDLength) }

// Arguments are those of the guest that runs it.
func (r Run) Arguments() []string {
	args := []string{Command, "-home", r.Home, "-cwd", r.Cwd}
	for _, name := range r.Given {
		args = append(args, "-given", name)
	}
	return append(append(args, "--"), r.Args...)
}

// Cleaning are the arguments of the guest that removes its directory.
func (r Run) Cleaning() []string { return []string{Command, "-home", r.Home, "-clean"} }

// Main is the subcommand. It returns the exit code of a verifier that did not start.
func Main(args []string) int {
	var r Run
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.StringVar(&r.Home, "home", "", "directory to make")
	flags.StringVar(&r.Cwd, "cwd", "/workspace", "working directory")
	flags.Func("given", "variable to pass on as it is", func(name string) error {
		r.Given = append(r.Given, name)
		return nil
	})
	clean := flags.Bool("clean", false, "remove the directory instead")
	err := flags.Parse(args)
	r.Args = flags.Args()
	switch {
	case err != nil:
	case *clean:
		err = os.RemoveAll(r.Home)
	default:
		err = r.exec()
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "guest: verifier: %v\n", err)
	if errors.Is(err, exec.ErrNotFound) {
		return exitNotFound
	}
	return exitCannotStart
}

// exec becomes the program. It returns only when it cannot.
func (r Run) exec() error {
	if len(r.Args) == 0 {
		return errors.New("no command was given")
	}
	if err := enter(r.Cwd); err != nil {
		return err
	}
	if err := os.Mkdir(r.Home, 0o700); err != nil {
		return fmt.Errorf("make its own directory: %w", err)
	}
	env := r.environ(os.Environ())
	program := r.Args[0]
	if !strings.Contains(program, "/") {
		var err error
		if program, err = find(program, env); err != nil {
			return err
		}
	}
	err := syscall.Exec(program, r.Args, env)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(exec.ErrNotFound, err)
	}
	return fmt.Errorf("cannot start %s: %w", program, err)
}

// enter enters the working directory, which must lie in the sandbox's roots whatever links lead there.
func enter(dir string) error {
	err := os.Chdir(dir)
	if err == nil {
		var at string
		if at, err = syscall.Getwd(); err == nil {
			err = files.CheckPath(at)
		}
	}
	if err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}

// find finds a program in the directories of PATH, all of which are safe. It skips a link that leads out of them.
func find(name string, env []string) (string, error) {
	for _, v := range env {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			file := filepath.Join(dir, name)
			info, err := os.Stat(file)
			if err == nil && !info.IsDir() && safe(file) && unix.Access(file, unix.X_OK) == nil {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("%s is in no directory of PATH that code of the sandbox cannot write; name its path to run it all the same: %w",
		name, exec.ErrNotFound)
}
