package guest

import "github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"

// ExecArgs are the helper's arguments to run a command under an id.
func ExecArgs(id string, r sandbox.ExecRequest) []string {
	args := []string{"exec", "-id", id, "-timeout", r.Timeout.String(), "-cwd", r.Cwd}
	if r.Shell != "" {
		return append(args, "-shell", "--", r.Shell)
	}
	return append(append(args, "--"), r.Command...)
}
