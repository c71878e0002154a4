package reconciler

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/spf13/pflag"
)

// reloadable are the settings that are taken over without a restart. What their files hold is read again too.
var reloadable = []string{"log-level", "token-file", "webhook-secret-file"}

// reloader has settings read again when the operator asks for it.
type reloader struct {
	flags *pflag.FlagSet // as the program was started with
	from  origins
	was   map[string]string // effective settings
	level *slog.LevelVar
	log   *slog.Logger
	to    chan<- Config
}

// run works until ctx ends.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		next, err := r.read(os.Environ())
		if err != nil {
			r.log.Error("reconciler: settings stay as they were", "error", err)
			continue
		}
		r.level.Set(next.LogLevel)
		select {
		case r.to <- next:
		case <-ctx.Done():
			return
		}
	}
}

// read reads the settings again, and tells of those that changed in vain.
func (r *reloader) read(environ []string) (Config, error) {
	s := &serving{}
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	s.addFlags(f, &s.gateway)
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
		return s.Config, err
	}
	if _, err := settle(f, environ); err != nil {
		return s.Config, err
	}
	if err := s.complete(); err != nil {
		return s.Config, err
	}
	now := effective(f)
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if now[name] != r.was[name] && !slices.Contains(reloadable, name) {
			r.log.Warn("reconciler: a changed setting waits for a restart", "setting", name, "now", r.was[name], "then", now[name])
		}
	}
	return s.Config, nil
}
