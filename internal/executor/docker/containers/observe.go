package containers

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Observer implements driver.Observer and driver.ContainerHost.
type Observer struct {
	containers *Containers
	engine     *engine.Engine
}

var (
	_ driver.Observer      = Observer{}
	_ driver.ContainerHost = Observer{}
)

// Observer returns the observer of the containers.
func (cs *Containers) Observer() Observer { return Observer{cs, cs.engine} }

// ContainerID implements driver.ContainerHost.
func (obs Observer) ContainerID(h driver.Handle) string {
	id, _ := obs.containers.ids.get(h)
	return id
}

// Inspect implements driver.Observer.
func (obs Observer) Inspect(ctx context.Context, h driver.Handle) (driver.Observation, error) {
	c, err := obs.containers.Inspect(ctx, h)
	if err != nil {
		return driver.Observation{}, err
	}
	o := observe(c)
	o.Companions, err = obs.observeCompanions(ctx, o.Handle, c.Config.Labels, engine.ReadLimit, true)
	return o, err
}

// labelled returns the part of an observation that is in a container's labels.
func labelled(labels map[string]string) driver.Observation {
	return driver.Observation{
		Handle:     objects.HandleIn(labels),
		LeaseID:    labels[objects.LabelLease],
		AgentDID:   labels[objects.LabelAgent],
		Generation: generationOf(labels),
		Image:      labels[objects.LabelImage],
	}
}

func observe(c dockerapi.ContainerInspect) driver.Observation {
	labels := c.Config.Labels
	o := labelled(labels)
	o.Deadline, o.State = DeadlineOf(c.Config.Entrypoint), engine.StateOf(c.State)
	o.Resources = sandbox.Resources{MemoryMB: c.HostConfig.Memory >> 20, CPUMillis: c.HostConfig.NanoCPUs / 1e6}
	o.ExitCode, o.OOMKilled = c.State.ExitCode, diedOfMemory(c.State)
	o.CreatedAt, o.StartedAt, o.StoppedAt = engine.ParseTime(c.Created), engine.ParseTime(c.State.StartedAt),
		engine.ParseTime(c.State.FinishedAt)
	if c.HostConfig.PidsLimit != nil {
		o.Resources.PIDs = *c.HostConfig.PidsLimit
	}
	if c.Image != labels[objects.LabelImageID] {
		o.Image = c.Image // the specification's reference names another image now
	}
	return o
}

// generationOf returns the generation in a sandbox's labels, 0 if it has none.
func generationOf(labels map[string]string) int64 {
	n, err := strconv.ParseInt(labels[objects.LabelGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// diedOfMemory reports whether a sandbox ended because it ran out of memory. The engine's own flag is also set if only
// a command did, and survives later starts.
func diedOfMemory(s *dockerapi.ContainerState) bool {
	const killed = 128 + 9
	return engine.StateOf(s) == sandbox.StateStopped && s.OOMKilled && s.ExitCode == killed
}

// List implements driver.Observer.
func (obs Observer) List(ctx context.Context, ledgerID string) ([]driver.Observation, error) {
	return obs.list(ctx, "containers of ledger", ledgerID,
		map[string]string{objects.LabelLedger: ledgerID, objects.LabelRole: string(objects.RoleSandbox)})
}

// ListEnvironment implements driver.Observer.
func (obs Observer) ListEnvironment(ctx context.Context, ref driver.EnvironmentRef) ([]driver.Observation, error) {
	return obs.list(ctx, "containers of environment", ref.EnvironmentID, map[string]string{
		objects.LabelLedger: ref.LedgerID, objects.LabelEnvironment: ref.EnvironmentID,
		objects.LabelRole: string(objects.RoleSandbox),
	})
}

// list inspects the sandboxes with the labels.
func (obs Observer) list(ctx context.Context, what, id string, labels map[string]string) ([]driver.Observation, error) {
	found, err := obs.engine.ListContainers(ctx, what, id, objects.Filter(labels))
	if err != nil {
		return nil, err
	}
	list := make([]driver.Observation, len(found))
	looks, looking := errgroup.WithContext(ctx)
	looks.SetLimit(Lookers)
	for i := range found {
		looks.Go(func() (err error) {
			list[i], err = obs.lookAtListed(looking, &found[i])
			return err
		})
	}
	if err := looks.Wait(); err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(o driver.Observation) bool { return o.SandboxID == "" })
	if slices.ContainsFunc(list, func(o driver.Observation) bool { return o.Hangs }) {
		if _, err := obs.engine.Info(ctx); err != nil { // the engine hangs, not a container
			return nil, err
		}
	}
	return list, nil
}

// Lookers limits the concurrent inspections of a list.
const Lookers = 16

// lookAtListed inspects a listed container and its companions, because a list lacks limits and exit codes. The sandbox
// hangs if one of these containers does. It returns the zero value if the container is gone.
func (obs Observer) lookAtListed(ctx context.Context, s *dockerapi.ContainerSummary) (o driver.Observation, err error) {
	c, err := obs.engine.ContainerWithin(ctx, s.ID, engine.ListedLimit)
	if err == nil {
		o = observe(c)
		obs.containers.Remember(o.Handle, c.ID)
		o.Companions, err = obs.observeCompanions(ctx, o.Handle, c.Config.Labels, engine.ListedLimit, false)
	}
	switch {
	case sandbox.CodeOf(err) == sandbox.NotFound:
		return driver.Observation{}, nil
	case engine.Hangs(ctx, err):
		obs.engine.Log.Warn("docker: the engine does not answer about one container", "container", s.ID,
			"sandbox", s.Labels[objects.LabelSandbox], "error", err)
		o = labelled(s.Labels)
		o.Hangs, o.State, o.CreatedAt = true, listedState(s.State), time.Unix(s.Created, 0).UTC()
		return o, nil
	}
	return o, err
}

func listedState(s dockerapi.ContainerStatus) sandbox.State {
	switch s {
	case dockerapi.StateRunning, dockerapi.StateRestarting:
		return sandbox.StateRunning
	case dockerapi.StatePaused:
		return sandbox.StatePaused
	case dockerapi.StateCreated:
		return sandbox.StateCreated
	case dockerapi.StateRemoving:
		return sandbox.StateRemoving
	default:
		return sandbox.StateStopped
	}
}

// Usage implements driver.Observer.
func (obs Observer) Usage(ctx context.Context, h driver.Handle) (driver.Usage, error) {
	c, err := obs.containers.Inspect(ctx, h)
	if err != nil {
		return driver.Usage{}, err
	}
	if s := engine.StateOf(c.State); s != sandbox.StateRunning && s != sandbox.StatePaused {
		return driver.Usage{}, WrongState(h, s)
	}
	r := engine.Read("sample container", objects.SandboxName(h))
	r.Reason = sandbox.ReasonStatsFailed
	r.Waits = true // Engine 20.10 answers with its next sample, up to 1 s later
	stats, err := engine.Fetch(ctx, obs.engine, r, func(ctx context.Context) (dockerapi.StatsResponse, error) {
		var stats dockerapi.StatsResponse
		answer, err := obs.engine.API.ContainerStatsOneShot(ctx, c.ID)
		if err != nil {
			return stats, err
		}
		defer answer.Body.Close()
		return stats, json.NewDecoder(answer.Body).Decode(&stats)
	})
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return driver.Usage{}, obs.containers.absent(ctx, h)
	}
	if err != nil {
		return driver.Usage{}, err
	}
	return driver.Usage{
		CPUTime:     time.Duration(stats.CPUStats.CPUUsage.TotalUsage),
		MemoryBytes: int64(memoryInUse(stats.MemoryStats)),
		PIDs:        int64(stats.PidsStats.Current),
	}, nil
}

// Boots implements driver.Observer: the engine knows the latest start and stop.
func (obs Observer) Boots(ctx context.Context, h driver.Handle) ([]driver.Boot, error) {
	o, err := obs.Inspect(ctx, h)
	if sandbox.CodeOf(err) == sandbox.NotFound {
		if i := obs.remembered(ctx, h); !i.RemovedAt.IsZero() {
			return []driver.Boot{i}, nil
		}
	}
	if err != nil || o.StartedAt.IsZero() {
		return nil, err
	}
	i := driver.Boot{StartedAt: o.StartedAt}
	if o.State == sandbox.StateStopped {
		i.StoppedAt = o.StoppedAt
	}
	return []driver.Boot{i}, nil
}

// recallLimit limits the wait for past events: an engine with a slow clock waits until its clock reaches the end of the
// range.
const recallLimit = 2 * time.Second

// remembered returns the boot of a removed sandbox from the engine's event log. The log has only 256 events, so the
// result may be empty.
func (obs Observer) remembered(ctx context.Context, h driver.Handle) (i driver.Boot) {
	ctx, cancel := context.WithTimeout(ctx, recallLimit)
	defer cancel()
	f := dockerapi.NewFilters(dockerapi.Filter("type", string(dockerapi.ContainerEventType)),
		dockerapi.Filter("container", objects.SandboxName(h)))
	messages, ended := obs.engine.API.Events(ctx, dockerapi.EventListOptions{
		Filters: f, Since: "1", Until: strconv.FormatInt(time.Now().Unix()+1, 10),
	})
	for {
		select {
		case m := <-messages:
			switch at := time.Unix(0, m.TimeNano).UTC(); m.Action {
			case dockerapi.ActionStart:
				i = driver.Boot{StartedAt: at}
			case dockerapi.ActionDie:
				i.StoppedAt = at
			case dockerapi.ActionDestroy:
				i.RemovedAt = at
			}
		case err := <-ended: // usually the end of the log; the received events are valid in any case
			obs.engine.Log.DebugContext(ctx, "docker: reading past events failed", "sandbox", h.SandboxID, "error", err)
			return i
		}
	}
}

// memoryInUse excludes page cache that the kernel may drop, as `docker stats` does, for cgroup version 1
// (total_inactive_file) and 2 (inactive_file).
func memoryInUse(m dockerapi.MemoryStats) uint64 {
	for _, name := range []string{"total_inactive_file", "inactive_file"} {
		if cache, ok := m.Stats[name]; ok && cache < m.Usage {
			return m.Usage - cache
		}
	}
	return m.Usage
}

// watched are the container events that change state or limits.
var watched = []dockerapi.Action{
	dockerapi.ActionCreate, dockerapi.ActionStart, dockerapi.ActionDie, dockerapi.ActionOOM, dockerapi.ActionPause,
	dockerapi.ActionUnPause, dockerapi.ActionUpdate, dockerapi.ActionDestroy, dockerapi.ActionRename,
}

// Watch implements driver.Observer.
func (obs Observer) Watch(ctx context.Context, ledgerID string, ready func(), changed func(sandboxID string)) error {
	info, err := obs.engine.Info(ctx)
	if err != nil {
		return err
	}
	f := objects.Filter(map[string]string{objects.LabelLedger: ledgerID})
	f.Add("type", string(dockerapi.ContainerEventType))
	for _, a := range watched {
		f.Add("event", string(a))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Some engines answer before they subscribe. To close that gap, the range starts at the engine's time before the
	// request.
	messages, failed := obs.engine.API.Events(ctx, dockerapi.EventListOptions{Filters: f, Since: info.SystemTime})
	select {
	case err := <-failed:
		return engine.Read("watch", "the engine").Classify(err)
	default:
		ready()
	}
	for {
		select {
		case m := <-messages:
			switch objects.Role(m.Actor.Attributes[objects.LabelRole]) {
			case objects.RoleSandbox, objects.RoleCompanion:
				changed(m.Actor.Attributes[objects.LabelSandbox])
			}
		case err := <-failed:
			return engine.Read("watch", "the engine").Classify(err)
		}
	}
}
