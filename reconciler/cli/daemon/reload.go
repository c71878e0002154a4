package daemon

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
)

// reloadable are the settings that change without a restart, together with the content of their files.
var reloadable = []string{"log-level", "token-file", "webhook-secret-file", "oidc-client-secret-file", "oidc-role"}

// reloader reloads the settings on SIGHUP.
type reloader struct {
	flags *pflag.FlagSet // of the start of the program
	from  origins
	was   map[string]string // the effective settings at the start
	level *slog.LevelVar
	log   *slog.Logger
	to    chan<- reconciler.Config
}

// run reloads on each signal until ctx ends.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		next, err := r.read(os.Environ())
		if err != nil {
			r.log.Error("reconciler: reloading failed; the old settings stay in force", "error", err)
			continue
		}
		r.level.Set(next.logLevel)
		select {
		case r.to <- next.Config:
		case <-ctx.Done():
			return
		}
	}
}

// read reads the settings, and logs the changed ones that need a restart.
func (r *reloader) read(environ []string) (*settings, error) {
	s := &settings{}
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	s.addFlags(f)
	var err error
	r.flags.Visit(func(flag *pflag.Flag) {
		if err != nil || f.Lookup(flag.Name) == nil || r.from[flag.Name] != "flag" {
			return
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			err = setList(f, flag.Name, list.GetSlice())
			return
		}
		err = f.Set(flag.Name, flag.Value.String())
	})
	if err != nil {
		return nil, err
	}
	if _, err := resolveSettings(f, environ); err != nil {
		return nil, err
	}
	if err := s.complete(false); err != nil {
		return nil, err
	}
	now := effective(f)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if now[name] != r.was[name] && !slices.Contains(reloadable, name) {
			r.log.Warn("reconciler: a changed setting needs a restart", "setting", name,
				"now", r.was[name], "then", now[name])
		}
	}
	return s, nil
}
