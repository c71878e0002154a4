package docker_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
)

func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(probeContext); ok {
		probeEngine(name)
		return
	}
	executortest.Overlap()
	goleak.VerifyTestMain(m)
}

// probeContext makes the test binary print the engine that New finds with this context.
const probeContext = "SANDBOX_TEST_PROBE_CONTEXT"

func probeEngine(name string) {
	x, err := docker.New(docker.Config{Context: name})
	if err != nil {
		fmt.Print(err)
		return
	}
	id, err := x.Instance(context.Background())
	if err != nil {
		fmt.Print(err)
	}
	fmt.Print(id)
}

func TestContract(t *testing.T) {
	executortest.Run(t, contractOn(dockertest.Engine(t), "", dockertest.Busybox(t)))
}

// contractOn is the contract for the engine at host, "" for the machine's engine.
func contractOn(api *dockerapi.Client, host, image string) executortest.Config {
	removing := new(atomic.Int64)
	return executortest.Config{
		New:      func(t *testing.T) driver.Executor { return newExecutorOn(t, host) },
		Timed:    func(t *testing.T) driver.Executor { return timedExecutor(t, api, removing) },
		Removing: func() time.Duration { return time.Duration(removing.Load()) },
		Image:    image,
		RemoveBehindBack: func(t *testing.T, h driver.Handle) {
			if err := api.ContainerRemove(t.Context(), name(h), dockerapi.ContainerRemoveOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
		},
		StopBehindBack: func(t *testing.T, h driver.Handle) {
			if err := api.ContainerKill(t.Context(), name(h), "KILL"); err != nil {
				t.Fatal(err)
			}
		},
		BreakChannel: func(t *testing.T, h driver.Handle) {
			c, err := api.ContainerInspect(t.Context(), name(h))
			must(t, err)
			dockertest.KillBroker(t, c.ID)
		},
		Objects: func(t *testing.T, ledgerID string) []string { return objectsOn(t, api, ledgerID) },
	}
}

// timedExecutor returns an executor on an engine. It adds up the time of the engine's removals of containers.
func timedExecutor(t *testing.T, api *dockerapi.Client, removing *atomic.Int64) *docker.Executor {
	t.Helper()
	p := dockertest.NewProxyTo(t, api.DaemonHost())
	p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		began := time.Now()
		pass(rw, r)
		if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/containers/") {
			removing.Add(int64(time.Since(began)))
		}
	})
	return newExecutorOn(t, p.Host())
}

func newExecutor(t testing.TB) *docker.Executor {
	t.Helper()
	return newExecutorOn(t, "")
}

func newExecutorOn(t testing.TB, host string) *docker.Executor {
	t.Helper()
	x, err := docker.New(docker.Config{
		Host:   host,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// name is the documented name of a sandbox's container.
func name(h driver.Handle) string { return fmt.Sprintf("sandbox-%s-%s", h.LedgerID, h.SandboxID) }

// objectsOfLedger names all objects of a ledger on the engine.
func objectsOfLedger(t testing.TB, ledgerID string) []string {
	t.Helper()
	return objectsOn(t, dockertest.Engine(t), ledgerID)
}

func objectsOn(t testing.TB, api *dockerapi.Client, ledgerID string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	f := dockerapi.NewFilters(dockerapi.Filter("label", "io.sandbox-lease.ledger="+ledgerID))
	var left []string
	containers, err := api.ContainerList(ctx, dockerapi.ContainerListOptions{All: true, Filters: f})
	if err != nil {
		t.Error(err)
	}
	for _, c := range containers {
		left = append(left, fmt.Sprintf("container %v", c.Names))
	}
	volumes, err := api.VolumeList(ctx, dockerapi.VolumeListOptions{Filters: f})
	if err != nil {
		t.Error(err)
	}
	for _, v := range volumes.Volumes {
		left = append(left, "volume "+v.Name)
	}
	networks, err := api.NetworkList(ctx, dockerapi.NetworkListOptions{Filters: f})
	if err != nil {
		t.Error(err)
	}
	for _, n := range networks {
		left = append(left, "network "+n.Name)
	}
	images, err := api.ImageList(ctx, dockerapi.ImageListOptions{All: true, Filters: f})
	if err != nil {
		t.Error(err)
	}
	for _, i := range images {
		left = append(left, fmt.Sprintf("image %v", i.RepoTags))
	}
	return left
}
