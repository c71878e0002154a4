package gateways

import (
	"context"
	"encoding/json"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// EgressLogs implements driver.EgressLogger.
func (b Broker) EgressLogs(ctx context.Context, ledgerID string) ([]driver.EnvironmentRef, error) {
	gateways, err := b.gateways.engine.ContainersOf(ctx, ledgerID, objects.RoleGateway)
	refs := make([]driver.EnvironmentRef, 0, len(gateways))
	for _, g := range gateways {
		refs = append(refs, objects.EnvironmentOf(g.Handle))
	}
	return refs, err
}

// EgressLog implements driver.EgressLogger.
func (b Broker) EgressLog(ctx context.Context, ref driver.EnvironmentRef,
	after sandbox.GatewayPosition) ([]sandbox.EgressRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, engine.ReadLimit)
	defer cancel()
	entries, err := b.gateways.clientOf(ref).Attempts(ctx, audit.Position(after))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable,
			"docker: gateway of environment %s: read the egress log: %w (docker logs %s shows it too)",
			ref.EnvironmentID, err, objects.GatewayName(ref))
	}
	records := make([]sandbox.EgressRecord, len(entries))
	for i, entry := range entries {
		var r audit.Record
		if err := json.Unmarshal(entry.Record, &r); err != nil {
			return nil, sandbox.Errorf(sandbox.Internal, "docker: gateway of environment %s: line %d of its run %d: %w",
				ref.EnvironmentID, entry.Line, entry.Run, err)
		}
		records[i] = egressRecord(entry.Position, r)
	}
	return records, nil
}

func egressRecord(at audit.Position, r audit.Record) sandbox.EgressRecord {
	return sandbox.EgressRecord{
		GatewayPosition: sandbox.GatewayPosition(at), Kind: sandbox.EgressKind(r.Kind), SandboxID: r.Sandbox,
		Verdict: sandbox.EgressVerdict(r.Verdict), Count: r.Count,
		EgressAttempt: sandbox.EgressAttempt{
			Attempt: r.Attempt, At: r.Time, AgentDID: r.Agent, Protocol: string(r.Protocol), Host: r.Host, Port: int(r.Port),
			Address: r.Address, Reason: string(r.Reason), Detail: r.Detail, Ended: r.Kind == audit.Closed,
			SentBytes: r.Sent, ReceivedBytes: r.Received, DurationMS: r.Duration.Milliseconds(),
		},
	}
}
