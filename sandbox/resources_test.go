package sandbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// put returns a request for an environment that is valid before change is applied.
func put(change func(s *sandbox.EnvironmentSpec)) sandbox.PutEnvironment {
	p := sandbox.PutEnvironment{
		ID:              "catan-7",
		EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player", Network: sandbox.NetworkNone},
	}
	change(&p.EnvironmentSpec)
	return p.WithDefaults()
}

// wrongField returns the one wrong field and its problem, "" if the request is valid.
func wrongField(t *testing.T, p sandbox.PutEnvironment) (name, problem string) {
	t.Helper()
	err := p.Validate()
	if err == nil {
		return "", ""
	}
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != sandbox.Invalid || len(e.Fields) != 1 {
		t.Fatalf("the error is %v, want one field", err)
	}
	return e.Fields[0].Name, e.Fields[0].Problem
}

func TestWhatDoesNotShutASandboxInIsRefusedByName(t *testing.T) {
	t.Parallel()
	const allowByDefault = `{"defaultAction":"SCMP_ACT_ALLOW"}`
	for name, row := range map[string]struct {
		c              sandbox.Confinement
		field, problem string
	}{
		"nothing":      {},
		"a user":       {c: sandbox.Confinement{User: "2000:3000"}},
		"a user alone": {c: sandbox.Confinement{User: "2000"}},
		"root": {
			c:       sandbox.Confinement{User: "0:0"},
			field:   "confinement.user",
			problem: "allow_root",
		},
		"root's group": {
			c:       sandbox.Confinement{User: "1000:0"},
			field:   "confinement.user",
			problem: "allow_root",
		},
		"root without its group": {c: sandbox.Confinement{User: "0"}, field: "confinement.user", problem: "allow_root"},
		"root that is allowed":   {c: sandbox.Confinement{User: "0:0", AllowRoot: true}},
		"process 1": {
			c:       sandbox.Confinement{User: "65533"},
			field:   "confinement.user",
			problem: "process 1",
		},
		"a user by name": {
			c:       sandbox.Confinement{User: "node"},
			field:   "confinement.user",
			problem: "numeric",
		},
		"an id that not every namespace has": {
			c:       sandbox.Confinement{User: "70000:1000"},
			field:   "confinement.user",
			problem: "65535",
		},
		"a runtime": {c: sandbox.Confinement{Runtime: "runsc"}},
		"a path for a runtime": {
			c:       sandbox.Confinement{Runtime: "../runc"},
			field:   "confinement.runtime",
			problem: "name",
		},
		"a profile": {
			c: sandbox.Confinement{SeccompProfile: `{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[]}`},
		},
		"a profile that denies little": {c: sandbox.Confinement{SeccompProfile: allowByDefault},
			field: "confinement.seccomp_profile", problem: "SCMP_ACT_ALLOW"},
		"no profile": {
			c:       sandbox.Confinement{SeccompProfile: "unconfined"},
			field:   "confinement.seccomp_profile",
			problem: "JSON",
		},
		"a profile's path": {
			c:       sandbox.Confinement{SeccompProfile: "/etc/profile.json"},
			field:   "confinement.seccomp_profile",
			problem: "path",
		},
		"a profile too large": {
			c:       sandbox.Confinement{SeccompProfile: strings.Repeat(" ", 200_000)},
			field:   "confinement.seccomp_profile",
			problem: "bytes",
		},
		"too large a /tmp": {
			c:       sandbox.Confinement{TmpMB: 32769},
			field:   "confinement.tmp_mb",
			problem: "between 1 and 32768",
		},
		"a /run below nothing": {
			c:       sandbox.Confinement{RunMB: -1},
			field:   "confinement.run_mb",
			problem: "between 1 and 1024",
		},
		"too few open files": {
			c:       sandbox.Confinement{OpenFiles: 63},
			field:   "confinement.open_files",
			problem: "between 64",
		},
		"another disk limit": {
			c:       sandbox.Confinement{DiskLimit: "maybe"},
			field:   "confinement.disk_limit",
			problem: "billed or enforced",
		},
	} {
		field, problem := wrongField(t, put(func(s *sandbox.EnvironmentSpec) { s.Confinement = row.c }))
		if field != row.field || !strings.Contains(problem, row.problem) {
			t.Errorf("%s: %q is wrong: %q; want %q and %q", name, field, problem, row.field, row.problem)
		}
	}
}

func TestSizesOutOfRangeAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		field     string
		set       func(r *sandbox.Resources, v int64)
		low, high int64
	}{
		{"resources.memory_mb", func(r *sandbox.Resources, v int64) { r.MemoryMB = v }, 64, 32768},
		{"resources.cpu_millis", func(r *sandbox.Resources, v int64) { r.CPUMillis = v }, 50, 16000},
		{"resources.pids_limit", func(r *sandbox.Resources, v int64) { r.PIDs = v }, 32, 4096},
		{"resources.disk_mb", func(r *sandbox.Resources, v int64) { r.DiskMB = v }, 1024, 102400},
	} {
		for v, want := range map[int64]string{row.low - 1: row.field, row.low: "", row.high: "", row.high + 1: row.field} {
			field, problem := wrongField(t, put(func(s *sandbox.EnvironmentSpec) { row.set(&s.Resources, v) }))
			if field != want {
				t.Errorf("%s of %d: %q is wrong: %q", row.field, v, field, problem)
			}
		}
	}
}

// /tmp and /run are memory. A size that is not their default is no larger than their part of it: the sandbox would have
// less than the environment says.
func TestDirectoriesAboveTheirPartOfTheMemoryAreRefused(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		memory, tmp, run int64
		field, problem   string
	}{
		{field: ""}, // the defaults, at the default size
		{memory: 64, field: ""},
		{memory: 2048, tmp: 1024, run: 128, field: ""},
		{tmp: 256, run: 32, field: ""},
		{tmp: 32768, field: "confinement.tmp_mb", problem: "must be at most 256, half of the 512 MiB of memory, not 32768"},
		{memory: 2048, tmp: 1025, field: "confinement.tmp_mb",
			problem: "must be at most 1024, half of the 2048 MiB of memory, not 1025"},
		{run: 33, field: "confinement.run_mb", problem: "must be at most 32, a sixteenth of the 512 MiB of memory, not 33"},
		{memory: 32768, run: 1025, field: "confinement.run_mb", problem: "must be between 1 and 1024, not 1025"},
		{memory: 1, tmp: 64, field: "resources.memory_mb", problem: "must be between 64 and 32768, not 1"},
	} {
		field, problem := wrongField(t, put(func(s *sandbox.EnvironmentSpec) {
			s.Resources.MemoryMB, s.Confinement = row.memory, sandbox.Confinement{TmpMB: row.tmp, RunMB: row.run}
		}))
		if field != row.field || problem != row.problem {
			t.Errorf("%+v: %q is wrong: %q", row, field, problem)
		}
	}
}
