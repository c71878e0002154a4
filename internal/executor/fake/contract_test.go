package fake_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestContract(t *testing.T) {
	t.Parallel()
	x := fake.New("engine", time.Now)
	contract(t, x)
}

func TestContractOfABackendThatRecords(t *testing.T) {
	t.Parallel()
	x := fake.New("engine", time.Now)
	x.Record()
	contract(t, x)
}

func TestContractOfABackendThatKeepsTime(t *testing.T) {
	t.Parallel()
	x := fake.New("engine", time.Now)
	x.KeepTime(time.Minute)
	contract(t, x)
}

func contract(t *testing.T, x *fake.Executor) {
	executortest.Run(t, executortest.Config{
		New:              func(*testing.T) driver.Executor { return x },
		Image:            "image",
		RemoveBehindBack: func(_ *testing.T, h driver.Handle) { x.Remove(h.SandboxID) },
		StopBehindBack: func(_ *testing.T, h driver.Handle) {
			x.Change(h.SandboxID, func(o *driver.Observation) { o.State, o.StoppedAt = sandbox.StateStopped, time.Now() })
		},
	})
}
