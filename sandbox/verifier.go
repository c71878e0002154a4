package sandbox

// ExecAs names in which role a command runs.
type ExecAs string

// AsVerifier runs a command whose result code of the sandbox cannot forge. It has a user of its own, all other programs of
// the sandbox are stopped while it runs, and it takes from the sandbox only files that its program reads. Where a program
// of the sandbox ran all the same, there is an error and no result.
const AsVerifier ExecAs = "verifier"

// asFields returns what is wrong with the role of a command.
func (r ExecRequest) asFields() (f []Field) {
	bad := func(problem string) { f = append(f, Field{"as", problem}) }
	switch {
	case r.As == "":
	case r.As != AsVerifier:
		bad("must be verifier, or left out")
	case r.User != "":
		bad("cannot be given with user: a verifier has a user of its own")
	case r.Session != "":
		bad("cannot be given to a command of a session: what a session has comes from code of the sandbox")
	}
	return f
}

// CheckVerifier refuses a verifier that the rules do not allow. Errors: Invalid.
func (r CommandRules) CheckVerifier(what string, envNames []string) error {
	f := r.fields("", envNames, "")
	if r.SharedUser {
		f = append(f, Field{"as", "needs a sandbox whose user is its own: leave confinement.user of the environment unset, and acquire the lease again"})
	}
	return InvalidFields(what, f)
}

// VerifierField refuses verifiers of a backend that has none.
func VerifierField(b Backend) Field {
	return Field{"as", "must be left out: backend " + string(b) + " runs no verifiers"}
}
