// Package exit defines how the program ends: its exit codes, and the errors that select one.
package exit

import (
	"errors"
	"fmt"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Exit codes. exec and run exit with the code of the command, and with NotRun when there is none.
const (
	Done   = 0
	Failed = 1   // rejected or failed; also a certificate that is not trusted
	Usage  = 2   // the command line or the request is wrong
	Retry  = 75  // EX_TEMPFAIL of sysexits.h: out of reach, too busy, or of unknown outcome
	NotRun = 125 // as in docker run
	// TimedOut is the code of a command, or of a wait, whose own --timeout passed.
	TimedOut = sandbox.ExitTimeout
)

// coded ends the program with a code; err, unless nil, is printed.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }
func (e *coded) Unwrap() error { return e.err }

// With returns an error that ends the program with a code. The program prints err, unless it is nil.
func With(code int, err error) error { return &coded{code, err} }

// DidNotRun returns the error of a command of exec, run or session exec that did not run. An error that has an exit
// code already, such as that of a wrong command line, keeps it.
func DidNotRun(err error) error {
	if _, ok := errors.AsType[*coded](err); ok || err == nil {
		return err
	}
	return With(NotRun, err)
}

// WrongLinef returns the error of a command line that was rejected before any request. The program ends with Usage,
// even if its other errors have another exit code.
func WrongLinef(format string, args ...any) error { return With(Usage, Usagef(format, args...)) }

// Usagef returns the error of a wrong command line. Its code is Invalid, and the program ends with Usage.
func Usagef(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Invalid, format, args...)
}

// Of returns the exit code of a command that ended with err, and the error to print, nil for none.
func Of(err error) (code int, printed error) {
	if e, ok := errors.AsType[*coded](err); ok {
		return e.code, e.err
	}
	switch {
	case err == nil:
		return Done, nil
	case sandbox.CodeOf(err) == sandbox.Invalid:
		return Usage, err
	case sandbox.IsRetryable(err):
		return Retry, err
	default:
		return Failed, err
	}
}
