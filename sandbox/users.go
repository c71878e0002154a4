package sandbox

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

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

// KeeperID is the user and group of process 1 of a sandbox. Sandbox code never runs under it. Every user
// namespace contains it.
const KeeperID = 65533

// Users of sandboxes. Kernel limits, such as inotify instances and pending signals, apply per host user. With a
// separate user, a sandbox cannot use up its neighbours' limits.
const (
	// firstOwnID starts a range that no distribution, container manager or directory service assigns.
	// https://systemd.io/UIDS-GIDS, read 2026-11-22, lists 0x70000000 to 0x7FFFFFFF as unused.
	firstOwnID = 0x70000000
	ownIDs     = 1 << 28
	// firstNarrowID starts the range on engines with user namespaces, which map only 65,536 ids.
	firstNarrowID = 20_000
	narrowIDs     = 40_000
	// idsEach is the number of ids per sandbox: one for its code, one for its verifier.
	idsEach = 2
)

// Identity is the user and group of a sandbox's code.
type Identity struct {
	UID, GID int
	// Own: the user is meant for this sandbox alone. Among a thousand sandboxes on one engine, two get the same
	// user with a probability of 0.4 %. They then share kernel limits and nothing else.
	Own bool
}

// Identity returns the user of a sandbox: the one that the confinement names, or one derived from the sandbox's
// id. Set narrow for engines with user namespaces.
func (c Confinement) Identity(sandboxID string, narrow bool) Identity {
	if uid, gid, ok := c.ids(); ok {
		return Identity{UID: uid, GID: gid}
	}
	first, count := uint64(firstOwnID), uint64(ownIDs)
	if narrow {
		first, count = firstNarrowID, narrowIDs
	}
	sum := sha256.Sum256([]byte(sandboxID))
	id := int(first + binary.BigEndian.Uint64(sum[:])%(count/idsEach)*idsEach)
	return Identity{UID: id, GID: id, Own: true}
}

// Verifier returns the user and group of the sandbox's verifier. A sandbox with a configured user has none,
// because the next id may belong to another user.
func (i Identity) Verifier() (id int, ok bool) { return i.UID + 1, i.Own }

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
