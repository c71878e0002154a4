package reconciler_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The server in a companion exits while its program continues. The test kills the reconciler that saw it healthy. The
// next one detects that it is not.
func TestAReconcilerChecksTheCompanionsOfTheOneBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan", func(p *sandbox.PutEnvironment) {
		never := sandbox.Duration(0)
		p.SleepAfter = &never
		p.Companions = sandbox.Companions{"db": {
			Image: w.image,
			Command: []string{"sh", "-c", "httpd -f -p 127.0.0.1:8811 & echo serving; nc -l -p 8812 </dev/null; " +
				"kill $!; echo no longer serving; exec sleep 7015"},
			Resources:   sandbox.Resources{MemoryMB: 64, CPUMillis: 500, PIDs: 64, DiskMB: 1024},
			HealthCheck: sandbox.CompanionHealthCheck{Port: 8811, Timeout: sandbox.Duration(time.Second)},
		}}
	})
	l := w.acquire(agent(1), "catan")
	w.exec(l.ID, "sh", "-c", "until nc 127.0.0.1 8812 </dev/null; do sleep 0.1; done")
	w.kill()
	w.start()
	w.eventually("the companion is unhealthy", func() bool {
		return w.lease(l.ID).Companions[0].State == sandbox.CompanionUnhealthy
	})
	if c := w.lease(l.ID).Companions[0]; !strings.HasPrefix(c.Message, "3 health checks in a row failed") {
		t.Errorf("the companion is %+v", c)
	}
	log, err := w.service.ReadCompanion(t.Context(),
		sandbox.CompanionLogRequest{LeaseRef: sandbox.LeaseRef{ID: l.ID}, Name: "db", Offset: 3})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(log)
	if _ = log.Close(); err != nil || log.Offset != 3 || string(text) != "ving\nno longer serving\n" {
		t.Errorf("the log from byte %d is %q (%v)", log.Offset, text, err)
	}
}
