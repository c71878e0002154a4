// Command shell stands in for /bin/sh in images that have none: local workerd runs each command as
//
//	/bin/sh -c 'echo $$ > FILE; exec "$@"' sh COMMAND ARGUMENT...
//
// and it can do nothing else. At Cloudflare a command needs no shell.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	err := run(os.Args)
	fmt.Fprintln(os.Stderr, "sh:", err)
	os.Exit(126)
}

// run replaces this process by the command, or returns why it cannot.
func run(args []string) error {
	if len(args) < 5 || args[1] != "-c" {
		return fmt.Errorf("this is not a shell: it runs what local workerd asks for, not %q", args)
	}
	file, isTold := strings.CutPrefix(args[2], "echo $$ > ")
	file, isExec := strings.CutSuffix(file, `; exec "$@"`)
	if !isTold || !isExec {
		return fmt.Errorf("this is not a shell: it does not know %q", args[2])
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return err
	}
	program, err := exec.LookPath(args[4])
	if err != nil {
		return err
	}
	return syscall.Exec(program, args[4:], os.Environ()) //nolint:gosec // it is what workerd asks for
}
