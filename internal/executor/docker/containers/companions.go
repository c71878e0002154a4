package containers

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Companions returns the names of a sandbox's companions. It inspects each sandbox once. Errors: as for Inspect.
func (cs *Containers) Companions(ctx context.Context, h driver.Handle) ([]string, error) {
	if h.Companion != "" {
		return nil, nil
	}
	names, known := cs.companions.get(h)
	if known {
		return names, nil
	}
	c, err := cs.Inspect(ctx, h)
	if err != nil {
		return nil, err
	}
	names = objects.CompanionNames(c.Config.Labels)
	cs.RememberCompanions(h, names)
	return names, nil
}

// RememberCompanions caches the names of a sandbox's companions.
func (cs *Containers) RememberCompanions(h driver.Handle, names []string) {
	cs.companions.set(h, names)
}

// KnownCompanions returns the cached names of a sandbox's companions, nil for none.
func (cs *Containers) KnownCompanions(h driver.Handle) []string {
	names, _ := cs.companions.get(h)
	return names
}

// ForgetCompanions forgets the names of a sandbox's companions.
func (cs *Containers) ForgetCompanions(h driver.Handle) { cs.companions.forget(h) }

// observeCompanions observes the existing companions of a sandbox. limit is the deadline for each inspection.
func (obs Observer) observeCompanions(ctx context.Context, h driver.Handle, labels map[string]string,
	limit time.Duration, withOutput bool) (map[string]driver.CompanionObservation, error) {
	names := objects.CompanionNames(labels)
	if len(names) == 0 {
		return nil, nil
	}
	seen := make([]*driver.CompanionObservation, len(names))
	looks, looking := errgroup.WithContext(ctx)
	for i, name := range names {
		looks.Go(func() error {
			c, err := obs.containers.inspectWithin(looking, h.Of(name), limit)
			if sandbox.CodeOf(err) == sandbox.NotFound {
				return nil
			}
			if err != nil {
				return err
			}
			o := observe(c)
			seen[i] = &driver.CompanionObservation{
				State: o.State, Resources: o.Resources, ExitCode: o.ExitCode, OOMKilled: o.OOMKilled,
				StartedAt: o.StartedAt, StoppedAt: o.StoppedAt,
			}
			if withOutput && o.State == sandbox.StateStopped {
				seen[i].Output, err = obs.companionOutput(looking, h.Of(name))
			}
			return err
		})
	}
	if err := looks.Wait(); err != nil {
		return nil, err
	}
	found := make(map[string]driver.CompanionObservation, len(names))
	for i, o := range seen {
		if o != nil {
			found[names[i]] = *o
		}
	}
	return found, nil
}

// companionOutput returns the end of the output of a stopped companion's program. Process 1 repeats it in the
// container's log.
func (obs Observer) companionOutput(ctx context.Context, h driver.Handle) (string, error) {
	_, said, err := obs.engine.Output(ctx, objects.SandboxName(h))
	at := strings.LastIndex(string(said), guest.LastWords)
	if at < 0 { // process 1 was killed
		return "", err
	}
	return string(said[at+len(guest.LastWords):]), err
}
