package sandbox

// ExecAs is the role in which a command runs.
type ExecAs string

// AsVerifier runs a command whose result the sandbox's code cannot forge. The verifier has a separate user. All
// other programs of the sandbox are frozen while it runs. From the sandbox it takes only the files that its
// program reads. If another program ran nevertheless, the command returns an error and no result.
const AsVerifier ExecAs = "verifier"

// asFields returns the problems of a command's role.
func (r ExecRequest) asFields() (f []Field) {
	bad := func(problem string) { f = append(f, Field{"as", problem}) }
	switch {
	case r.As == "":
	case r.As != AsVerifier:
		bad("must be verifier, if set")
	case r.User != "":
		bad("must not be set together with user: a verifier has a separate user")
	case r.Session != "":
		bad("must not be set for a command of a session: the session's state comes from code of the sandbox")
	}
	return f
}

// CheckVerifier rejects a verifier that the rules do not allow. Errors: Invalid.
func (r CommandRules) CheckVerifier(what string, envNames []string) error {
	f := r.fields("", envNames, "")
	if r.SharedUser {
		f = append(f, Field{"as", "requires a sandbox with a separate user: remove confinement.user from the environment, " +
			"and acquire the lease again"})
	}
	return InvalidFields(what, f)
}

// VerifierField is the error field for a backend that cannot run verifiers.
func VerifierField(b Backend) Field {
	return Field{"as", "must not be set: backend " + string(b) + " runs no verifiers"}
}
