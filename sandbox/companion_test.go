package sandbox_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A health check with neither command nor port checks nothing. An environment that was read has the default
// start_period without one, and can be put again.
func TestAHealthCheckWithoutACheckIsRefused(t *testing.T) {
	t.Parallel()
	second := sandbox.Duration(time.Second)
	for _, row := range []struct {
		check sandbox.CompanionHealthCheck
		field string
	}{
		{sandbox.CompanionHealthCheck{}, ""},
		{sandbox.CompanionHealthCheck{StartPeriod: sandbox.DefaultStartPeriod}, ""},
		{sandbox.CompanionHealthCheck{Port: 1, StartPeriod: second, Interval: second, Timeout: second}, ""},
		{sandbox.CompanionHealthCheck{Command: []string{"true"}}, ""},
		{sandbox.CompanionHealthCheck{StartPeriod: second}, "companions.db.health_check"},
		{sandbox.CompanionHealthCheck{Interval: second}, "companions.db.health_check"},
		{sandbox.CompanionHealthCheck{Timeout: second}, "companions.db.health_check"},
		{sandbox.CompanionHealthCheck{Path: "/"}, "companions.db.health_check.path"},
	} {
		field, problem := wrongField(t, put(func(s *sandbox.EnvironmentSpec) {
			s.Companions = sandbox.Companions{"db": {Image: "db", HealthCheck: row.check}}
		}))
		if field != row.field {
			t.Errorf("%+v: %q is wrong: %q", row.check, field, problem)
		}
	}
}
