package fake

import (
	"context"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// gateways are the gateways of environments.
type gateways struct {
	*machine

	// mu guards what follows.
	egress  map[driver.EnvironmentRef][]sandbox.EgressRecord
	brokers map[driver.EnvironmentRef]*broker
}

func newGateways(m *machine) gateways {
	return gateways{machine: m, egress: make(map[driver.EnvironmentRef][]sandbox.EgressRecord),
		brokers: make(map[driver.EnvironmentRef]*broker)}
}

// egressPage is the number of lines in a page.
const egressPage = 1000

// EgressLogs implements driver.EgressLogger.
func (x *gateways) EgressLogs(ctx context.Context, ledgerID string) ([]driver.EnvironmentRef, error) {
	if err := x.enter(ctx, OpEgressLogs, ""); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	var refs []driver.EnvironmentRef
	for ref := range x.egress {
		if ref.LedgerID == ledgerID {
			refs = append(refs, ref)
		}
	}
	return refs, nil
}

// EgressLog implements driver.EgressLogger.
func (x *gateways) EgressLog(ctx context.Context, ref driver.EnvironmentRef,
	after sandbox.GatewayPosition) ([]sandbox.EgressRecord, error) {
	if err := x.enter(ctx, OpEgressLog, ref.Instance); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	log := x.egress[ref]
	i := slices.IndexFunc(log, func(r sandbox.EgressRecord) bool { return r.After(after) })
	if i < 0 {
		return nil, nil
	}
	return slices.Clone(log[i:min(len(log), i+egressPage)]), nil
}

// LogEgress makes the gateway of an environment log lines. A line without a position follows the last line; the first
// one begins run 1.
func (x *gateways) LogEgress(ref driver.EnvironmentRef, records ...sandbox.EgressRecord) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range records {
		if r.GatewayPosition == (sandbox.GatewayPosition{}) {
			r.GatewayPosition = sandbox.GatewayPosition{Run: 1, Line: 1}
			if log := x.egress[ref]; len(log) > 0 {
				last := log[len(log)-1].GatewayPosition
				r.GatewayPosition = sandbox.GatewayPosition{Run: last.Run, Line: last.Line + 1}
			}
		}
		x.egress[ref] = append(x.egress[ref], r)
	}
}
