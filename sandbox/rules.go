package sandbox

import "fmt"

// CommandRules are an environment's rules for everything that runs in its sandboxes: commands, processes,
// sessions and post-start commands.
type CommandRules struct {
	// Blocked are variables that the environment blocks, in addition to those that are always blocked.
	Blocked []string
	// AllowRoot permits user and group 0.
	AllowRoot bool
	// SharedUser: the environment sets one user for all of its sandboxes.
	SharedUser bool
}

// AnyRules are the rules that hold in every environment. They check a request before its environment is known.
func AnyRules() CommandRules { return CommandRules{AllowRoot: true} }

// Rules returns the environment's rules for commands.
func (s EnvironmentSpec) Rules() CommandRules {
	return CommandRules{Blocked: s.EnvBlocked, AllowRoot: s.Confinement.AllowRoot, SharedUser: s.Confinement.User != ""}
}

// Check rejects variables and users that the rules do not allow. what names the request. Errors: Invalid.
func (r CommandRules) Check(what string, envNames []string, user string) error {
	return InvalidFields(what, r.fields("", envNames, user))
}

// fields returns the problems of a command's variables and user. Field names start with prefix.
func (r CommandRules) fields(prefix string, envNames []string, user string) (f []Field) {
	for _, name := range envNames {
		if problem := EnvProblem(name, r.Blocked); problem != "" {
			f = append(f, Field{prefix + "env." + name, problem})
		}
	}
	if user != "" { // "" is the sandbox's user
		if problem := userProblem(user, r.AllowRoot); problem != "" {
			f = append(f, Field{prefix + "user", problem})
		}
	}
	return f
}

// userProblem returns why a command must not run as user, "" if it may. Names are rejected because each image
// decides which numbers they stand for.
func userProblem(user string, allowRoot bool) string {
	switch uid, gid, ok := (Confinement{User: user}).ids(); {
	case !ok:
		return fmt.Sprintf("must be a numeric uid or uid:gid up to %d, not %q: user names of images are not resolved",
			maxUserID, user)
	case uid == KeeperID || gid == KeeperID:
		return fmt.Sprintf("must not be %d, the user of process 1 in every sandbox: choose another user", KeeperID)
	case (uid == 0 || gid == 0) && !allowRoot:
		return fmt.Sprintf(
			"must not be root, but %q is: choose another user, or set allow_root in the environment's confinement", user)
	}
	return ""
}
