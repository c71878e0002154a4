package docker_test

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestTheEngineNeverHoldsASecret reads all that the engine reveals of a sandbox with a secret.
func TestTheEngineNeverHoldsASecret(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	h := w.spawn(t)
	const value = "hunter2-of-docker"
	must(t, w.x.PutSecrets(t.Context(), h, map[string]sandbox.Secret{"token": value}))
	if got := w.exec(t, h, "cat", "/run/secrets/token"); got != value {
		t.Fatalf("the sandbox reads %q", got)
	}
	c, told, err := api.ContainerInspectWithRaw(t.Context(), name(h), false)
	must(t, err)
	for _, id := range c.ExecIDs {
		x, err := api.ContainerExecInspect(t.Context(), id)
		must(t, err)
		text, err := json.Marshal(x)
		must(t, err)
		told = append(told, text...)
	}
	logs, err := api.ContainerLogs(t.Context(), name(h), dockerapi.LogsOptions{ShowStdout: true, ShowStderr: true})
	must(t, err)
	text, err := io.ReadAll(logs)
	must(t, err)
	must(t, logs.Close())
	changes, err := api.ContainerDiff(t.Context(), name(h))
	must(t, err)
	diff, err := json.Marshal(changes)
	must(t, err)
	told = append(append(told, text...), diff...)
	for _, shown := range []string{value, `"token"`} {
		if bytes.Contains(told, []byte(shown)) {
			t.Errorf("the engine tells %s", shown)
		}
	}
}
