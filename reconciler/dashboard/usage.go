package dashboard

import (
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/chart"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// usageRefresh is the reload interval of the usage page. Each load samples the sandbox.
const usageRefresh = 15 * time.Second

// stretches are the selectable periods. Longer periods are shown in steps, about as many as an hour has samples.
var stretches = []struct {
	last   string // in the page's URL
	name   string
	length time.Duration
	step   time.Duration // 0: each sample
}{
	{"", "hour", time.Hour, 0}, {"6h", "6 hours", 6 * time.Hour, 5 * time.Minute},
	{"24h", "24 hours", sandbox.UsageKept, 15 * time.Minute},
}

// usagePage shows the current and past usage of a sandbox.
type usagePage struct {
	leaseHead
	// Now is nil if unknown. Problem then says why.
	Now     *usageNow
	Problem string
	Periods []tab
	Stretch string // the shown period
	From    time.Time
	Lines   []chart.Line
	Rows    []usageRow // latest first
	// Stepped means that each row covers a step: the mean of CPU, and the maximum of the others.
	Stepped bool
}

// usageNow is the current usage of a sandbox.
type usageNow struct {
	Used              sandbox.LeaseUsage
	Memory, PIDs, CPU chart.Meter
	// CPUMillis is the mean since the last stored sample, in thousandths of a core; nil without one.
	CPUMillis *int64
}

// usageRow is a row of the table beside the charts.
type usageRow struct {
	At        time.Time
	CPUMillis *int64
	Memory    int64
	PIDs      int64
	Apart     bool // there is a gap before the row
}

// usage shows the current usage of a lease's sandbox, without waking it, and the stored samples.
func usage(p *page) error {
	l, err := p.leaseHead("usage")
	if err != nil {
		return err
	}
	ref := sandbox.LeaseRef{ID: l.ID, Generation: l.Generation}
	v := usagePage{leaseHead: l}
	chosen := stretches[0]
	for _, s := range stretches {
		if s.last == p.query("last") {
			chosen = s
		}
	}
	for _, s := range stretches {
		v.Periods = append(v.Periods, tab{s.name, link.To(link.Lease(l.ID, "usage"), "last", s.last), s == chosen})
	}
	to := p.now()
	from := to.Add(-chosen.length)
	h, err := p.service.LeaseUsageHistory(p.ctx, sandbox.UsageHistoryQuery{LeaseRef: ref, From: from})
	if err != nil {
		return err
	}
	now, err := p.service.LeaseUsage(p.ctx, ref)
	switch sandbox.CodeOf(err) {
	case "":
		v.Now = usageNowOf(now, h.Samples)
	case sandbox.LeaseEnded, sandbox.Conflict, sandbox.Unavailable:
		v.Problem = err.Error()
	default:
		return err
	}
	rows := usageRows(h.Samples, chosen.step)
	v.Stretch, v.From, v.Stepped, v.Lines = chosen.name, from, chosen.step > 0, usageLines(rows, from, to, h.Limits)
	slices.Reverse(rows)
	v.Rows = rows
	return p.frame("usage",
		&frame{Title: "Usage of " + l.AgentDID, Section: "leases", Refresh: int(usageRefresh.Seconds()), Page: v})
}

// usageNowOf relates the current usage to the limits and to the last stored sample.
func usageNowOf(u sandbox.LeaseUsage, kept []sandbox.UsageSample) *usageNow {
	n := &usageNow{
		Used:   u,
		Memory: chart.NewMeter(float64(u.MemoryBytes), 0, float64(u.Limits.MemoryMB<<20)),
		PIDs:   chart.NewMeter(float64(u.PIDs), 0, float64(u.Limits.PIDs)),
	}
	if len(kept) > 0 {
		n.CPUMillis = sandbox.UsageSample{At: u.SampledAt, CPUTime: u.CPUTime}.Since(kept[len(kept)-1]).CPUMillis
	}
	if u.State != sandbox.StateRunning {
		n.CPUMillis = new(int64)
	}
	if n.CPUMillis != nil {
		n.CPU = chart.NewMeter(float64(*n.CPUMillis), 0, float64(u.Limits.CPUMillis))
	}
	return n
}

// usageRows returns a row per sample or per step.
func usageRows(samples []sandbox.UsageSample, step time.Duration) []usageRow {
	var rows []usageRow
	var sum, n int64 // of the CPU means in the last row
	for _, s := range samples {
		at := s.At
		if step > 0 {
			at = at.Truncate(step)
		}
		if last := len(rows) - 1; last < 0 || !rows[last].At.Equal(at) {
			apart := last < 0 || at.Sub(rows[last].At) > max(step, sandbox.MaxUsageGap)
			rows, sum, n = append(rows, usageRow{At: at, Apart: apart}), 0, 0
		}
		r := &rows[len(rows)-1]
		r.Memory, r.PIDs = max(r.Memory, s.MemoryBytes), max(r.PIDs, s.PIDs)
		if s.CPUMillis != nil {
			sum, n = sum+*s.CPUMillis, n+1
			mean := sum / n
			r.CPUMillis = &mean
		}
	}
	return rows
}

// usageLines draws rows, oldest first.
func usageLines(rows []usageRow, from, to time.Time, limits sandbox.Resources) []chart.Line {
	if len(rows) == 0 {
		return nil
	}
	var cpu, memory, pids []chart.Point
	missing := false
	for _, r := range rows {
		memory = append(memory, chart.Point{At: r.At, Value: float64(r.Memory), Apart: r.Apart})
		pids = append(pids, chart.Point{At: r.At, Value: float64(r.PIDs), Apart: r.Apart})
		if missing = missing || r.Apart; r.CPUMillis == nil {
			missing = true
			continue
		}
		cpu = append(cpu, chart.Point{At: r.At, Value: float64(*r.CPUMillis), Apart: missing})
		missing = false
	}
	return []chart.Line{
		chart.NewLine("CPU cores", cpu, from, to, limits.CPUMillis, format.Cores),
		chart.NewLine("Memory", memory, from, to, limits.MemoryMB<<20, format.Bytes),
		chart.NewLine("Processes and threads", pids, from, to, limits.PIDs, itoa),
	}
}
