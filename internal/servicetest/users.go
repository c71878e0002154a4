package servicetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var userTests = []test{
	{"ACommandRunsAsRootOnlyWhereItsEnvironmentAllowsRoot", commandsRunAsRootOnlyWhereAllowed},
	{"UsersAreNumbersEverywhere", usersAreNumbers},
	{"ACommandRunsAsVerifier", commandsRunAsVerifier},
	{"AVerifierNeedsAUserOfTheSandboxsOwn", verifiersNeedAnOwnUser},
	{"AnEnvironmentDeclaresRootOnlyWhereItAllowsRoot", environmentsDeclareRootOnlyWhereAllowed},
}

// roots are users that are root, or have root's group.
var roots = []string{"0", "0:0", "0:1000", "1000:0", "00", "1000:000"}

// notNumbers are users that only an image could resolve to numbers, and ids that do not exist in every
// namespace.
var notNumbers = []string{
	"root", "root:root", "1000:root", "toor", "+0", "-1", "0x0", " 0", "1000:", ":0", "70000", "4294967296", "1000:70000",
	"1:2:3",
}

// asUser tries every way to set the user of a command, a process or a session in a lease's sandbox. The ids
// of new objects start with name.
func (w *world) asUser(name, user string) map[string]error {
	ref, command := sandbox.LeaseRef{ID: annsLease}, []string{"echo", "hello"}
	_, exec := w.Service.Exec(w.Context(), ref, sandbox.ExecRequest{Command: command, User: user})
	_, start := w.Service.StartExec(w.Context(), ref, sandbox.ExecRequest{Command: command, User: user})
	_, process := w.Service.StartProcess(w.Context(), ref, sandbox.ProcessSpec{Name: name, Command: command, User: user})
	_, session := w.Service.CreateSession(w.Context(), ref, sandbox.CreateSession{ID: name, User: user})
	_, run := w.Service.Run(w.Context(),
		sandbox.RunRequest{EnvironmentID: game, Owner: owner, ExecRequest: sandbox.ExecRequest{Command: command, User: user}})
	_, runOf := w.Service.Run(w.Context(), sandbox.RunRequest{EnvironmentID: game, AgentDID: bob, Owner: owner,
		ExecRequest: sandbox.ExecRequest{Command: command, User: user}})
	return map[string]error{
		"exec":            exec,
		"detached exec":   start,
		"process":         process,
		"session":         session,
		"run":             run,
		"run of an agent": runOf,
	}
}

func commandsRunAsRootOnlyWhereAllowed(w *world) {
	w.environment()
	l := w.acquire(ann)
	for i, user := range roots {
		for what, err := range w.asUser(fmt.Sprintf("p%d", i), user) {
			if w.wantError(err, sandbox.Invalid, "", "user"); err != nil && !strings.Contains(err.Error(), "allow_root") {
				w.Errorf("%s as %q: the error does not name allow_root: %v", what, user, err)
			}
		}
	}
	if execs := must(w.Service.ListExecs(w.Context(), sandbox.ExecFilter{LeaseID: l.ID}))(w); len(execs) > 0 {
		w.Errorf("commands were recorded: %+v", execs)
	}
	if all := must(w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{EnvironmentID: game}))(w); len(all) != 1 {
		w.Errorf("refused runs left leases: %+v", all)
	}

	w.environment(func(p *sandbox.PutEnvironment) { p.Confinement.AllowRoot = true })
	for what, err := range w.asUser("before", "0") {
		if refused := err != nil; refused == strings.HasPrefix(what, "run") {
			w.Errorf("%s in a sandbox from before the change: %v", what, err)
		}
	}
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: l.ID, Owner: owner}))(w)
	w.acquire(ann)
	for i, user := range roots {
		for what, err := range w.asUser(fmt.Sprintf("q%d", i), user) {
			if err != nil {
				w.Errorf("%s as %q, which the environment allows: %v", what, user, err)
			}
		}
	}
}

func usersAreNumbers(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.Confinement.AllowRoot = true })
	w.acquire(ann)
	for i, user := range notNumbers {
		for what, err := range w.asUser(fmt.Sprintf("p%d", i), user) {
			if w.wantError(err, sandbox.Invalid, "", "user"); err == nil {
				w.Errorf("%s as %q was accepted", what, user)
			}
		}
	}
}

func environmentsDeclareRootOnlyWhereAllowed(w *world) {
	spec := func(user string, allow bool) sandbox.PutEnvironment {
		return sandbox.PutEnvironment{ID: game, Owner: owner, EnvironmentSpec: sandbox.EnvironmentSpec{
			Image: "player", Network: sandbox.NetworkNone, Confinement: sandbox.Confinement{AllowRoot: allow},
			PostStart: []sandbox.PostStart{{Command: []string{"echo"}, User: user}},
			Processes: []sandbox.ProcessSpec{{Name: "relay", Command: []string{"echo"}, User: user}},
		}}
	}
	for _, user := range slices.Concat(roots, notNumbers) {
		_, err := w.Service.PutEnvironment(w.Context(), spec(user, false))
		w.wantError(err, sandbox.Invalid, "", "post_start[0].user", "processes[0].user")
	}
	for _, user := range notNumbers {
		_, err := w.Service.PutEnvironment(w.Context(), spec(user, true))
		w.wantError(err, sandbox.Invalid, "", "post_start[0].user", "processes[0].user")
	}
	for _, user := range slices.Concat(roots, []string{"1001", "1001:1002"}) {
		must(w.Service.PutEnvironment(w.Context(), spec(user, true)))(w)
	}
}

func commandsRunAsVerifier(w *world) {
	w.environment()
	l := w.acquire(ann)
	ref, as := sandbox.LeaseRef{ID: annsLease}, sandbox.AsVerifier
	req := sandbox.ExecRequest{ID: "verdict", Command: []string{"whoami"}, As: as}
	res := must(w.Service.Exec(w.Context(), ref, req))(w)
	if got := strings.TrimSpace(string(res.Stdout)); got != "verifier" {
		w.Errorf("it runs as %q", got)
	}
	if x := must(w.Service.GetExec(w.Context(), sandbox.ExecRef{LeaseID: l.ID, ID: "verdict"}))(w); x.As != as ||
		x.User != "" {
		w.Errorf("it is recorded as %q of user %q", x.As, x.User)
	}
	if again := must(w.Service.Exec(w.Context(), ref, req))(w); again.ExecID != "verdict" {
		w.Errorf("a repetition is %+v", again)
	}
	req.As = ""
	_, err := w.Service.Exec(w.Context(), ref, req)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings, "as")
	started := must(w.Service.StartExec(w.Context(), ref, sandbox.ExecRequest{Command: []string{"whoami"}, As: as}))(w)
	if started.As != as {
		w.Errorf("a detached one is recorded as %q", started.As)
	}
	must(w.Service.CreateSession(w.Context(), ref, sandbox.CreateSession{ID: "s"}))(w)
	for _, bad := range []sandbox.ExecRequest{{As: "root"}, {As: as, User: "1001"}, {As: as, Session: "s"}} {
		bad.Command = []string{"whoami"}
		_, err := w.Service.Exec(w.Context(), ref, bad)
		w.wantError(err, sandbox.Invalid, "", "as")
	}
	_, err = w.Service.Run(w.Context(), sandbox.RunRequest{
		EnvironmentID: game,
		Owner:         owner,
		ExecRequest:   sandbox.ExecRequest{Command: []string{"whoami"}, As: as},
	})
	w.wantError(err, sandbox.Invalid, "", "as")
}

func verifiersNeedAnOwnUser(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.Confinement.User = "2000:2000" })
	w.acquire(ann)
	_, err := w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease},
		sandbox.ExecRequest{Command: []string{"whoami"}, As: sandbox.AsVerifier})
	if w.wantError(err, sandbox.Invalid, "", "as"); err != nil && !strings.Contains(err.Error(), "confinement.user") {
		w.Errorf("the error does not name confinement.user: %v", err)
	}
}
