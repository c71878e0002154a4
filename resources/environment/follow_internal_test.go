package environment

import (
	"slices"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestWhatLivingSandboxesKeep: settings that living leases follow are not among the kept ones.
func TestWhatLivingSandboxesKeep(t *testing.T) {
	t.Parallel()
	was := sandbox.EnvironmentSpec{
		Image: "player:1", Network: sandbox.NetworkRestricted, Env: map[string]string{}, Snapshot: &sandbox.SnapshotSpec{},
	}
	for name, change := range map[string]func(*sandbox.EnvironmentSpec){
		"image":        func(s *sandbox.EnvironmentSpec) { s.Image = "player:2" },
		"network.mode": func(s *sandbox.EnvironmentSpec) { s.Network = sandbox.NetworkNone },
		"resources":    func(s *sandbox.EnvironmentSpec) { s.Resources.MemoryMB = 1024 },
		"env":          func(s *sandbox.EnvironmentSpec) { s.Env = map[string]string{"A": "b"} },
		"sleep_mode":   func(s *sandbox.EnvironmentSpec) { s.SleepMode = sandbox.SleepStop },
		"state.scope":  func(s *sandbox.EnvironmentSpec) { s.Snapshot = &sandbox.SnapshotSpec{Scope: sandbox.ScopeAgent} },
		"llm": func(s *sandbox.EnvironmentSpec) {
			s.LLM = map[string]sandbox.LLMRoute{"main": {API: sandbox.LLMOpenAI}}
		},
		"state": func(s *sandbox.EnvironmentSpec) { s.Snapshot = nil },
		"network.credentials": func(s *sandbox.EnvironmentSpec) {
			egress := sandbox.DefaultEgress()
			egress.Credentials = map[string]sandbox.EgressCredential{"github.com": {Secret: "token"}}
			s.Egress = &egress
		},
		"": follows,
	} {
		is := was
		change(&is)
		got := kept(was.WithDefaults(), is.WithDefaults())
		if want := []string{name}; name == "" && len(got) != 0 || name != "" && !slices.Equal(got, want) {
			t.Errorf("a change of %q is kept in %v", name, got)
		}
	}
}

// follows changes settings that living leases follow.
func follows(s *sandbox.EnvironmentSpec) {
	egress := sandbox.DefaultEgress()
	egress.Allow = nil
	s.Egress, s.TTL, s.Labels, s.Env = &egress, sandbox.DefaultTTL/2, map[string]string{"a": "b"}, nil
	s.ExpiryConditions, s.Secrets = []string{"game.over"}, []string{"key"}
	s.Snapshot = &sandbox.SnapshotSpec{SizeLimitMB: 8}
}

func TestLeasesThatAChangeDoesNotLeaveBehind(t *testing.T) {
	t.Parallel()
	is := sandbox.EnvironmentSpec{Image: "player:2", MaxLifetime: 20, SleepMode: sandbox.SleepStop}
	lifetime, sleep := []string{"max_lifetime"}, []string{"sleep_mode"}
	own := sandbox.LeaseSettings{MaxLifetime: new(sandbox.Duration(5))}
	for name, row := range map[string]struct {
		lease   sandbox.Lease
		changed []string
		has     bool
	}{
		"of before":          {sandbox.Lease{MaxLifetime: 10}, lifetime, false},
		"of after":           {sandbox.Lease{MaxLifetime: 20}, lifetime, true},
		"with its own":       {sandbox.Lease{MaxLifetime: 5, Settings: own}, lifetime, true},
		"of another image":   {sandbox.Lease{Image: "player:1", Settings: own}, []string{"image", "max_lifetime"}, false},
		"that still pauses":  {sandbox.Lease{SleepMode: sandbox.SleepPause}, sleep, false},
		"that stops already": {sandbox.Lease{SleepMode: sandbox.SleepStop}, sleep, true},
	} {
		if got := begunWith(row.lease, is, row.changed); got != row.has {
			t.Errorf("a lease %s has %v: %v", name, row.changed, got)
		}
	}
}
