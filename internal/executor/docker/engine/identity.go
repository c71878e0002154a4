package engine

import (
	"context"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// InfoOf returns the engine's description if the engine is the one that a handle names, by its id and by the witnesses
// of ledgers. Errors: Unavailable, with ReasonOtherInstance if it is another engine.
func (e *Engine) InfoOf(ctx context.Context, instance string) (dockerapi.Info, error) {
	info, err := e.Info(ctx)
	if err == nil && info.ID != instance {
		err = e.otherInstance(info.ID, instance)
	}
	if err == nil {
		err = e.Witnesses.recognize(ctx, instance)
	}
	return info, err
}

func (e *Engine) otherInstance(found, meant string) error {
	return sandbox.Errorf(sandbox.Unavailable, "docker: engine %s answers at %s, but engine %s is required: "+
		"connect to that one", found, e.API.DaemonHost(), meant).WithReason(sandbox.ReasonOtherInstance)
}

// Confirm checks that the engine has this id and the witnesses of ledgers. Errors: as for InfoOf.
func (e *Engine) Confirm(ctx context.Context, instance string) error {
	_, err := e.InfoOf(ctx, instance)
	return err
}

// Info returns the engine's self-description.
func (e *Engine) Info(ctx context.Context) (dockerapi.Info, error) {
	asked := time.Now()
	info, err := Fetch(ctx, e, Read("ask", "the engine"), e.API.Info)
	if err != nil {
		return info, err
	}
	e.noteClock(info, asked)
	if info.ID == "" {
		return info, sandbox.Errorf(sandbox.Unavailable, "docker: the engine at %s has no id (it may still be starting; "+
			"retry)",
			e.API.DaemonHost())
	}
	if !info.LiveRestoreEnabled {
		e.warned.Do(func() {
			e.Log.Warn("the Docker Engine runs without live-restore: a restart of the engine stops every sandbox and ends its "+
				"processes; set \"live-restore\": true in its daemon.json", "engine", info.ID, "host", e.API.DaemonHost())
		})
	}
	return info, nil
}

// CheckLabels checks that an object with one of our names has our labels. Labels of a lease may have changed since.
// Errors: Conflict if another program created it; Unavailable with ReasonOtherInstance if it was created on another
// engine.
func (e *Engine) CheckLabels(kind, name string, have, want map[string]string) error {
	for k, v := range want {
		if k != objects.LabelInstance && !strings.HasPrefix(k, objects.LabelOfLease) && have[k] != v {
			return sandbox.Errorf(sandbox.Conflict,
				"docker: %s %s exists without our labels, so another program created it; remove or rename it", kind, name)
		}
	}
	if have[objects.LabelInstance] != want[objects.LabelInstance] {
		return e.otherInstance(have[objects.LabelInstance], want[objects.LabelInstance])
	}
	return nil
}
