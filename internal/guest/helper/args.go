package helper

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
)

// Args returns the arguments of a guest that is run once more for the call. Errors: a request that is not valid.
func (c Call) Args() ([]string, error) {
	r := c.Request
	switch r.Op {
	case channel.OpExec, channel.OpProcess:
		return execArgs(r), nil
	case channel.OpFollow:
		f := r.Follow
		return []string{"follow", "-id", r.ID, "-now=" + strconv.FormatBool(f.Now), "-quiet=" + strconv.FormatBool(f.Quiet),
			"-stdout", strconv.FormatInt(f.StdoutOffset, 10), "-stderr", strconv.FormatInt(f.StderrOffset, 10)}, nil
	case channel.OpEnd:
		return []string{"kill", "-id", r.ID}, nil
	case channel.OpPort:
		return []string{"port", "-port", strconv.Itoa(r.Port)}, nil
	case channel.OpPut:
		return onPath("tar-in", "-dir", string(r.Path)), nil
	case channel.OpGet:
		return onPath("tar-out", "-path", string(r.Path)), nil
	case channel.OpFile:
		request, err := json.Marshal(r.File)
		return []string{"file", "-request", string(request)}, err
	default: // secrets and usage have no arguments
		return []string{string(r.Op)}, nil
	}
}

func execArgs(r channel.Request) []string {
	args := []string{"exec", "-id", r.ID}
	if r.Op == channel.OpProcess {
		args = append(args, "-process")
	} else {
		args = append(args, "-timeout", r.Exec.Timeout.String())
	}
	args = append(args, "-cwd", r.Exec.Cwd)
	if r.Exec.Shell {
		args = append(args, "-shell")
	}
	return append(append(args, "--"), r.Exec.Args...)
}

// User returns the user that the guest is run as, "" for the sandbox's own.
func (c Call) User() string { return cmp.Or(c.Request.Exec, &channel.Exec{}).User }

// Env returns the variables that the guest is run with.
func (c Call) Env() map[string]string { return cmp.Or(c.Request.Exec, &channel.Exec{}).Env }

// onPath are a helper's arguments for a path. Engines take text only; what is text stays as guests
// of earlier releases know it.
func onPath(command, flag, path string) []string {
	if utf8.ValidString(path) {
		return []string{command, flag, path}
	}
	return []string{command, "-base64", flag, base64.StdEncoding.EncodeToString([]byte(path))}
}
