package sandbox

import "fmt"

// CommandRules are what an environment decides about everything that runs in its sandboxes: commands, processes,
// sessions and post-start commands.
type CommandRules struct {
	// Blocked are variables that it blocks beside those that are always blocked.
	Blocked []string
	// AllowRoot permits user and group 0.
	AllowRoot bool
	// SharedUser: the environment names the user of its sandboxes, which share it.
	SharedUser bool
}

// AnyRules refuse only what every environment refuses: they check a request before its environment is known.
func AnyRules() CommandRules { return CommandRules{AllowRoot: true} }

// Rules returns the environment's rules for commands.
func (s EnvironmentSpec) Rules() CommandRules {
	return CommandRules{Blocked: s.EnvBlocked, AllowRoot: s.Confinement.AllowRoot, SharedUser: s.Confinement.User != ""}
}

// Check refuses names of variables and users that the rules do not allow. what names the request. Errors: Invalid.
func (r CommandRules) Check(what string, envNames []string, user string) error {
	return InvalidFields(what, r.fields("", envNames, user))
}

// fields returns what is wrong with the variables and the user of a command whose fields are named below prefix.
func (r CommandRules) fields(prefix string, envNames []string, user string) (f []Field) {
	for _, name := range envNames {
		if problem := EnvProblem(name, r.Blocked); problem != "" {
			f = append(f, Field{prefix + "env." + name, problem})
		}
	}
	if user != "" { // else it is the sandbox's own
		if problem := userProblem(user, r.AllowRoot); problem != "" {
			f = append(f, Field{prefix + "user", problem})
		}
	}
	return f
}

// userProblem says why nothing may run as a user, "" if it may. Names are refused because an image decides
// which numbers they stand for.
func userProblem(user string, allowRoot bool) string {
	switch uid, gid, ok := (Confinement{User: user}).ids(); {
	case !ok:
		return fmt.Sprintf("must be uid or uid:gid in numbers up to %d, not %q: names are not looked up in images", maxUserID, user)
	case uid == KeeperID || gid == KeeperID:
		return fmt.Sprintf("must not be %d, which is process 1 of every sandbox: choose another user", KeeperID)
	case (uid == 0 || gid == 0) && !allowRoot:
		return fmt.Sprintf("must not be root, as %q is: choose another user, or set allow_root in the environment's confinement", user)
	}
	return ""
}
