package docker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// No caller of a command without input notices that its broker was killed. Each command runs once, whatever was in
// transit.
func TestCallersSeeNothingOfABrokerThatIsKilled(t *testing.T) {
	t.Parallel()
	const clients, kills = 6, 40
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	h := w.spawn(t)
	c, err := api.ContainerInspect(t.Context(), name(h))
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	asked := make([]int, clients)
	for i := range clients {
		working.Go(func() {
			for ; ctx.Err() == nil; asked[i]++ {
				id := fmt.Sprintf("%d-%d", i, asked[i])
				asks := sandbox.ExecRequest{Command: []string{"sh", "-c", "echo " + id + " >>ran; echo did " + id}}
				if i%2 == 1 { // every other command reads its work from its input
					asks.Command[2] = `id=$(cat); echo "$id" >>ran; echo "did $id"`
					asks.Stdin = iotest.OneByteReader(strings.NewReader(id))
				}
				r, err := asks.Normalize()
				if err != nil {
					t.Error(err)
					return
				}
				res, err := w.x.Exec(t.Context(), h, r)
				if err != nil || string(res.Stdout) != "did "+id+"\n" {
					t.Errorf("command %s: %q, %v", id, res.Stdout, err)
				}
			}
		})
	}
	for killed := 0; killed < kills; {
		time.Sleep(250 * time.Millisecond) //nolint:forbidigo // the load itself
		pids := dockertest.Processes(t, c.ID, "guest", "broker")
		dockertest.KillProcesses(pids)
		killed += len(pids) // none if the broker is not back yet
	}
	stop()
	working.Wait()
	ran := make(map[string]int)
	for id := range strings.FieldsSeq(w.exec(t, h, "cat", "ran")) {
		ran[id]++
	}
	all := 0
	for i, n := range asked {
		all += n
		for k := range n {
			if id := fmt.Sprintf("%d-%d", i, k); ran[id] != 1 {
				t.Errorf("command %s ran %d times", id, ran[id])
			}
		}
	}
	t.Logf("%d commands met %d kills", all, kills)
	if all < kills {
		t.Errorf("%d commands met %d kills: too few to say anything", all, kills)
	}
}
