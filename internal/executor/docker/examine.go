package docker

import (
	"context"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
)

// Description is an engine's self-description.
type Description struct {
	Host, ID, Version, API, Architecture string
	// LiveRestore means that sandboxes survive a restart of the engine.
	LiveRestore bool
	// Rootless engines map root to a normal user.
	Rootless, Seccomp bool
	CgroupVersion     string
	// Unlimited names the limits that the engine cannot enforce: memory, CPU, processes.
	Unlimited []string
	// Ahead is the difference of its clock to this machine's. It is positive if the engine's is ahead.
	Ahead time.Duration
}

// Examine returns the description of the engine that cfg names. Errors: Invalid; Unavailable; Failed if this program
// has no guest for the engine's architecture.
func Examine(ctx context.Context, cfg Config) (x Description, err error) {
	e, err := New(cfg)
	if err != nil {
		return x, err
	}
	defer func() {
		if closeErr := e.Close(); err == nil {
			err = closeErr
		}
	}()
	asked := time.Now()
	info, err := e.engine.Info(ctx)
	if err != nil {
		return x, err
	}
	x = Description{Host: e.engine.API.DaemonHost(), ID: info.ID, Version: info.ServerVersion,
		Architecture: info.Architecture, LiveRestore: info.LiveRestoreEnabled, CgroupVersion: info.CgroupVersion}
	for _, option := range info.SecurityOptions {
		x.Rootless = x.Rootless || strings.Contains(option, "name=rootless")
		x.Seccomp = x.Seccomp || strings.Contains(option, "name=seccomp")
	}
	for _, limit := range []struct {
		name     string
		enforced bool
	}{{"memory", info.MemoryLimit}, {"CPU", info.CPUCfsQuota}, {"processes", info.PidsLimit}} {
		if !limit.enforced {
			x.Unlimited = append(x.Unlimited, limit.name)
		}
	}
	if now := engine.ParseTime(info.SystemTime); !now.IsZero() {
		x.Ahead = now.Sub(asked.Add(time.Since(asked) / 2))
	}
	r := engine.Read("ask for the version of", "the engine")
	version, err := engine.Fetch(ctx, e.engine, r, e.engine.API.ServerVersion)
	if err != nil {
		return x, err
	}
	x.API = version.APIVersion
	_, err = e.engine.GuestFor(ctx, info.ID)
	return x, err
}
