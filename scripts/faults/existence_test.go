package faults

import (
	"bufio"
	"context"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// existence has the times at which the engine started and removed a sandbox's container, by the engine's clock.
type existence struct {
	agent            string
	started, removed time.Time
}

// existences follows the engine's events.
type existences struct {
	stop context.CancelFunc
	done chan struct{}

	mu  sync.Mutex // guards all
	all map[string]*existence
}

// followEngine records from now on when the engine starts and removes the containers of a ledger's sandboxes.
func followEngine(t *testing.T, ledger string) *existences {
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	x := &existences{stop: stop, done: make(chan struct{}), all: make(map[string]*existence)}
	const label = "io.sandbox-lease."
	follow := exec.CommandContext(ctx, "docker", "events", "--since", strconv.FormatInt(time.Now().Unix(), 10),
		"--filter", "event=start", "--filter", "event=destroy", "--filter", "label="+label+"ledger="+ledger,
		"--filter", "label="+label+"role=sandbox", "--format", `{{.Action}} {{.TimeNano}} {{index .Actor.Attributes "`+label+
			`sandbox"}} {{index .Actor.Attributes "`+label+`agent"}}`)
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(x.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			x.note(strings.Fields(lines.Text()))
		}
		_ = follow.Wait() // stop ends it
	}()
	t.Cleanup(func() { stop(); <-x.done })
	return x
}

// note records one event: action, time in nanoseconds, sandbox, agent.
func (x *existences) note(event []string) {
	if len(event) != 4 {
		return
	}
	nanos, err := strconv.ParseInt(event[1], 10, 64)
	if err != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all[event[2]] == nil {
		x.all[event[2]] = &existence{agent: event[3]}
	}
	switch at := time.Unix(0, nanos); event[0] {
	case "start":
		x.all[event[2]].started = at
	case "destroy":
		x.all[event[2]].removed = at
	}
}

// seconds returns how long each agent's sandboxes existed, and their number.
func (x *existences) seconds(t *testing.T) (existed map[string]float64, count map[string]int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	existed, count = make(map[string]float64), make(map[string]int)
	for id, e := range x.all {
		if e.started.IsZero() {
			continue // it was created and removed before it ran
		}
		if e.removed.IsZero() {
			t.Errorf("the engine never reported the removal of sandbox %s", id)
			continue
		}
		existed[e.agent] += e.removed.Sub(e.started).Seconds()
		count[e.agent]++
	}
	return existed, count
}
