// Package providertest is the base of the provider's acceptance tests: the real Terraform CLI, the real Docker Engine,
// and a ledger for each test, in process or behind a reconciler.
package providertest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// World is one test's ledger and engine.
type World struct {
	testing.TB
	// LedgerURL is the URL of the ledger, which does not exist until something opens it.
	LedgerURL string
	// Image has a shell and is on the engine.
	Image  string
	Docker *dockerapi.Client
	// Name is unique to the test. It names environments and images.
	Name string

	engine string // the engine address for services; "" is the default

	mu   sync.Mutex // guards last
	last io.Closer  // the provider of the latest Terraform command
}

// New creates a world. It skips the test without TF_ACC. The test fails if it leaves anything of its ledgers on the
// engine.
func New(t testing.TB) *World {
	t.Helper()
	if os.Getenv("TF_ACC") == "" {
		t.Skip("acceptance tests run with TF_ACC=1")
	}
	w := &World{TB: t, Docker: dockertest.Engine(t), Image: dockertest.Busybox(t), Name: "tf-acc-" + sandbox.RandomIDs(8)}
	w.LedgerURL = w.NewLedger()
	t.Cleanup(w.closeProvider)
	return w
}

// NewLedger returns the URL of a ledger that does not exist yet.
func (w *World) NewLedger() string {
	url := "sqlite://" + filepath.Join(w.TempDir(), "ledger.db")
	w.Watch(url)
	return url
}

// Watch fails the test if it leaves anything of this ledger on the engine.
func (w *World) Watch(ledgerURL string) { w.Cleanup(func() { w.checkNothingLeft(ledgerURL) }) }

// Providers returns the provider in process, for terraform-plugin-testing.
func (w *World) Providers() map[string]func() (tfprotov6.ProviderServer, error) {
	return map[string]func() (tfprotov6.ProviderServer, error){
		"sandbox": func() (tfprotov6.ProviderServer, error) {
			w.closeProvider() // of the previous command
			p := provider.New("test")()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.last, _ = p.(io.Closer)
			return providerserver.NewProtocol6WithError(p)()
		},
	}
}

func (w *World) closeProvider() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil {
		if err := w.last.Close(); err != nil {
			w.Errorf("close the provider: %v", err)
		}
		w.last = nil
	}
}

// Embedded returns the configuration of a provider with an embedded ledger.
func (w *World) Embedded() string {
	var engine string
	if w.engine != "" {
		engine = fmt.Sprintf("  docker = {\n    host = %q\n  }\n", w.engine)
	}
	return fmt.Sprintf("provider \"sandbox\" {\n  ledger = %q\n%s}\n", w.LedgerURL, engine)
}

// Service returns a lease service on the same ledger with its own engine, like a second process. Tests use it for
// events in games and changes outside Terraform.
func (w *World) Service() service.Service {
	w.Helper()
	return w.ServiceOn(w.LedgerURL)
}

// ServiceOn returns a lease service on another ledger.
func (w *World) ServiceOn(url string) service.Service {
	w.Helper()
	executor, err := docker.New(docker.Config{})
	w.Must(err)
	store, err := ledger.Open(w.Context(), url, ledger.Options{})
	w.Must(err)
	engine, err := leasing.New(leasing.Config{Store: store, Executors: []driver.Executor{executor}, Version: "test"})
	w.Must(err)
	w.Cleanup(func() { w.Must(errors.Join(engine.Close(), store.Close(), executor.Close())) })
	return engine
}

// Condition delivers a condition to the ledger, as a game server does.
func (w *World) Condition(service service.Service, condition, environment, agent string) {
	w.Helper()
	c := sandbox.Condition{
		Type:      condition,
		Timestamp: time.Now(),
		Data:      sandbox.ConditionData{EnvironmentID: environment, AgentDID: agent, Reason: "told by the test"},
	}
	body, err := json.Marshal(c)
	w.Must(err)
	receipt, err := service.Deliver(w.Context(),
		sandbox.Delivery{ID: "msg_" + rand.Text(), Body: body, Source: "test", Condition: c})
	w.Must(err)
	if receipt.Status != sandbox.DeliveryApplied {
		w.Fatalf("condition %s was not applied: %+v", condition, receipt)
	}
}

// Container returns the id of a sandbox's container.
func (w *World) Container(sandboxID string) string {
	w.Helper()
	ids := w.containers("sandbox=" + sandboxID)
	if len(ids) != 1 {
		w.Fatalf("sandbox %s has the containers %v", sandboxID, ids)
	}
	return ids[0]
}

// Containers returns the ids of the containers of an environment's sandboxes.
func (w *World) Containers(environment string) []string {
	w.Helper()
	return w.containers("environment=" + environment)
}

func (w *World) containers(label string) []string {
	w.Helper()
	list, err := w.Docker.ContainerList(w.Context(), dockerapi.ContainerListOptions{
		All: true,
		Filters: dockerapi.NewFilters(
			dockerapi.Filter("label", "io.sandbox-lease."+label), dockerapi.Filter("label", "io.sandbox-lease.role=sandbox")),
	})
	w.Must(err)
	var ids []string
	for _, c := range list {
		ids = append(ids, c.ID)
	}
	return ids
}

// RemoveContainers removes the containers of an environment's sandboxes, as docker rm -f does.
func (w *World) RemoveContainers(environment string) {
	w.Helper()
	ids := w.Containers(environment)
	if len(ids) == 0 {
		w.Fatalf("environment %s has no container to remove", environment)
	}
	for _, id := range ids {
		w.Must(w.Docker.ContainerRemove(w.Context(), id, dockerapi.ContainerRemoveOptions{Force: true}))
	}
}

// checkNothingLeft fails the test if anything of a ledger is still on the engine, and removes it.
func (w *World) checkNothingLeft(url string) {
	if !exists(url) {
		return // no test step opened it
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store, err := ledger.Open(ctx, url, ledger.Options{})
	w.Must(err)
	label, repository := "io.sandbox-lease.ledger="+store.ID(), "sandbox-"+store.ID()
	w.Must(store.Close())
	containers, err := w.Docker.ContainerList(ctx,
		dockerapi.ContainerListOptions{All: true, Filters: dockerapi.NewFilters(dockerapi.Filter("label", label))})
	w.Must(err)
	for _, c := range containers {
		w.Errorf("container %v (%s) was left behind", c.Names, c.Status)
		w.Must(w.Docker.ContainerRemove(ctx, c.ID, dockerapi.ContainerRemoveOptions{Force: true}))
	}
	volumes, err := w.Docker.VolumeList(ctx,
		dockerapi.VolumeListOptions{Filters: dockerapi.NewFilters(dockerapi.Filter("label", label))})
	w.Must(err)
	for _, v := range volumes.Volumes {
		w.Errorf("volume %s was left behind", v.Name)
		w.Must(w.Docker.VolumeRemove(ctx, v.Name, true))
	}
	images, err := w.Docker.ImageList(ctx,
		dockerapi.ImageListOptions{Filters: dockerapi.NewFilters(dockerapi.Filter("reference", repository))})
	w.Must(err)
	for _, i := range images {
		w.Errorf("image %v was left behind", i.RepoTags)
		_, err := w.Docker.ImageRemove(ctx, i.ID, dockerapi.ImageRemoveOptions{Force: true, PruneChildren: true})
		w.Must(err)
	}
}

// WriteFile writes a temporary file and returns its path.
func (w *World) WriteFile(name, content string) string {
	w.Helper()
	path := filepath.Join(w.TempDir(), name)
	w.Must(os.WriteFile(path, []byte(content), 0o600))
	return path
}

// LedgerExists reports whether anything has opened the ledger.
func (w *World) LedgerExists() bool { return exists(w.LedgerURL) }

func exists(ledgerURL string) bool {
	_, err := os.Stat(ledgerURL[len("sqlite://"):])
	return !errors.Is(err, os.ErrNotExist)
}

// Must fails the test on an error.
func (w *World) Must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

var discard = slog.New(slog.DiscardHandler)
