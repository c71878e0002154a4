package dashboard

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

const (
	// maxSampled is how many sandboxes samples are kept of: the latest that somebody looked at.
	maxSampled = 64
	// maxSamples is how many samples of each: ten minutes while its page is open.
	maxSamples = 120
	// sampleEvery is how often at most a sandbox is looked at, however many look at its page.
	sampleEvery = 5 * time.Second
)

// samples are what sandboxes used while somebody looked at it. The ledger keeps no such history.
type samples struct {
	mu  sync.Mutex // guards what follows
	all *lru.Cache[string, []sandbox.LeaseUsage]
}

func newSamples() *samples {
	all, err := lru.New[string, []sandbox.LeaseUsage](maxSampled)
	if err != nil { // only of a size that is not positive
		panic(err)
	}
	return &samples{all: all}
}

// of returns the samples of a sandbox, the oldest first, and whether the last is recent enough.
func (s *samples) of(sandboxID string, now time.Time) (list []sandbox.LeaseUsage, recent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, _ = s.all.Get(sandboxID)
	return list, len(list) > 0 && now.Sub(list[len(list)-1].SampledAt) < sampleEvery
}

// add adds a sample and returns all, the oldest first. What was returned before does not change.
func (s *samples) add(u sandbox.LeaseUsage) []sandbox.LeaseUsage {
	s.mu.Lock()
	defer s.mu.Unlock()
	had, _ := s.all.Get(u.SandboxID)
	list := append(had[max(0, len(had)-maxSamples+1):len(had):len(had)], u)
	s.all.Add(u.SandboxID, list)
	return list
}

// usagePage is what a sandbox uses, and has used while somebody looked.
type usagePage struct {
	sandbox.Lease
	Now    sandbox.LeaseUsage
	Memory meter
	PIDs   meter
	CPU    meter
	// CPUCores is the mean since the sample before, in thousandths of a core; Compared: there was one.
	CPUMillis int64
	Compared  bool
	Lines     []line
	Samples   []usageRow // the latest first
}

// usageRow is a line of the table beside the charts.
type usageRow struct {
	At        time.Time
	CPUMillis int64
	Memory    int64
	PIDs      int64
}

// usage shows what a lease's sandbox uses. It looks at it without waking it.
func usage(p *page) error {
	l, err := p.service.GetLease(p.ctx, p.r.PathValue("id"))
	if err != nil {
		return err
	}
	list, recent := p.samples.of(l.SandboxID, p.now())
	if !recent {
		now, err := p.service.LeaseUsage(p.ctx, sandbox.LeaseRef{ID: l.ID, Generation: l.Generation})
		if err != nil {
			return err
		}
		list = p.samples.add(now)
	}
	v := usageOf(l, list)
	return p.frame("usage", &frame{Title: "Usage of " + l.AgentDID, Section: "leases", Refresh: int(sampleEvery.Seconds()), Page: v})
}

// usageOf shows samples, the oldest first, of which there is one at least.
func usageOf(l sandbox.Lease, list []sandbox.LeaseUsage) usagePage {
	now := list[len(list)-1]
	v := usagePage{Lease: l, Now: now, Compared: len(list) > 1}
	var cpu, memory, pids []point
	for i, u := range list {
		row := usageRow{At: u.SampledAt, Memory: u.MemoryBytes, PIDs: u.PIDs}
		if i > 0 {
			row.CPUMillis = meanCPU(list[i-1], u)
		}
		v.Samples = append([]usageRow{row}, v.Samples...)
		cpu = append(cpu, point{u.SampledAt, float64(row.CPUMillis)})
		memory = append(memory, point{u.SampledAt, float64(u.MemoryBytes)})
		pids = append(pids, point{u.SampledAt, float64(u.PIDs)})
	}
	v.CPUMillis = v.Samples[0].CPUMillis
	v.CPU = newMeter(float64(v.CPUMillis), 0, float64(now.Limits.CPUMillis))
	v.Memory = newMeter(float64(now.MemoryBytes), 0, float64(now.Limits.MemoryMB<<20))
	v.PIDs = newMeter(float64(now.PIDs), 0, float64(now.Limits.PIDs))
	if v.Compared {
		v.Lines = []line{
			newLine("CPU", cpu[1:], float64(now.Limits.CPUMillis)),
			newLine("Memory", memory, float64(now.Limits.MemoryMB<<20)),
			newLine("Processes and threads", pids, float64(now.Limits.PIDs)),
		}
	}
	return v
}

// meanCPU is what was used between two samples, in thousandths of a core; 0 when the sandbox started in between.
func meanCPU(before, after sandbox.LeaseUsage) int64 {
	took, used := after.SampledAt.Sub(before.SampledAt), after.CPUTime.D()-before.CPUTime.D()
	if took <= 0 || used < 0 {
		return 0
	}
	return int64(1000 * float64(used) / float64(took))
}
