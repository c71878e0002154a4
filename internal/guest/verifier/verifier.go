//go:build linux

// Package verifier is the last step before a verifier runs. The guest runs as the verifier's user, in a sandbox whose
// other programs are stopped. It creates the verifier's directory and removes variables through which sandbox code
// could interfere. Then it finds the program and executes it in place.
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

// Exit codes as in shells.
const (
	exitCannotStart = 126
	exitNotFound    = 127
)

// Run describes how a verifier runs.
type Run struct {
	// Home is the directory to create for it.
	Home string
	Cwd  string
	// Given names the variables that the caller set: they are passed on unchanged.
	Given []string
	Args  []string
}

// NewHome returns the path of a directory that sandbox code cannot guess.
func NewHome() string { return "/tmp/verifier-" + sandbox.RandomIDs(sandbox.LedgerIDLength) }

// Arguments returns the guest's arguments to run it.
func (r Run) Arguments() []string {
	args := []string{Command, "-home", r.Home, "-cwd", r.Cwd}
	for _, name := range r.Given {
		args = append(args, "-given", name)
	}
	return append(append(args, "--"), r.Args...)
}

// Cleaning returns the guest's arguments to remove its directory.
func (r Run) Cleaning() []string { return []string{Command, "-home", r.Home, "-clean"} }

// Main runs the subcommand. It returns the exit code of a verifier that did not start.
func Main(args []string) int {
	var r Run
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.StringVar(&r.Home, "home", "", "directory to create")
	flags.StringVar(&r.Cwd, "cwd", "/workspace", "working directory")
	flags.Func("given", "variable to pass on unchanged", func(name string) error {
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

// exec replaces this program by the verifier's. It returns only on failure.
func (r Run) exec() error {
	if len(r.Args) == 0 {
		return errors.New("the command is empty")
	}
	if err := enter(r.Cwd); err != nil {
		return err
	}
	if err := os.Mkdir(r.Home, 0o700); err != nil {
		return fmt.Errorf("create the verifier's directory: %w", err)
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

// enter enters the working directory, which must be in the sandbox's roots after following links.
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

// find finds a program in the directories of PATH, which are all safe. It skips links that lead out of them.
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
	return "", fmt.Errorf("%s is not in a directory of PATH that is safe from sandbox code; use its path to run it "+
		"nevertheless: %w", name, exec.ErrNotFound)
}
