package cli_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
)

func TestSessionsAreWorkedWith(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	sessions := func(stdin string, args ...string) result {
		return run(t.Context(), stdin,
			append([]string{"session", args[0], "--url", w.url, "--token-file", w.tokenFile}, args[1:]...)...)
	}
	const lease = "did:plc:ann::catan-7"
	w.want(sessions("", "create", lease, "--id", "turn-1", "--env", "TURN=1", "--cwd", "maps"), exit.Done, "turn-1",
		"open", "/workspace/maps", "TURN")
	if r := sessions("", "exec", lease, "turn-1", "--shell", "cd deeper && export MORE=2 && pwd",
		"--source", "user"); r != (result{0, "/workspace/maps/deeper\n", ""}) {
		t.Errorf("the line gave %+v", r)
	}
	if r := sessions("typed", "exec", lease, "turn-1", "-i", "--", "cat"); r != (result{0, "typed", ""}) {
		t.Errorf("cat gave %+v", r)
	}
	if r := sessions("", "exec", lease, "turn-1", "--", "exit", "42"); r.code != 42 {
		t.Errorf("exit 42 gave %+v", r)
	}
	w.want(sessions("", "list", lease), exit.Done, "turn-1", "/workspace/maps/deeper", "MORE TURN")
	w.want(sessions("", "close", lease, "turn-1"), exit.Done, "closed")
	for _, follow := range [][]string{nil, {"--follow"}} { // --follow ends, because the session is closed
		w.want(sessions("", append([]string{"events", lease, "turn-1", "--after", "1"}, follow...)...), exit.Done,
			"output  user    /workspace/maps/deeper", "input   agent   cat", "input   agent   typed",
			"system  system  exit code 42")
	}
	w.want(sessions("", "events", lease, "turn-1", "-o", "json"), exit.Done, `"sequence":1,`,
		`"type":"input","source":"user"`)
	w.want(sessions("", "exec", lease, "turn-1", "--", "echo"), exit.NotRun, "closed")
	w.want(sessions("", "exec", lease), exit.Usage, "a session")
	w.want(sessions("", "exec", lease, "turn-1", "-o", "json", "--", "echo"), exit.Usage, "prints the command's own output")
	w.want(sessions("", "create", lease, "--env", "TURN"), exit.Usage, "NAME=value")
}
