package dashboard

import "github.com/sandbox-lease/terraform-provider-sandbox/sandbox"

// processesPage lists the processes and the companions of a lease's sandbox.
type processesPage struct {
	leaseHead
	Processes []sandbox.Process
}

// processes lists the processes and the companions of a lease's current generation.
func processes(p *page) error {
	h, err := p.leaseHead("processes")
	if err != nil {
		return err
	}
	v := processesPage{leaseHead: h}
	if v.Processes, err = p.service.ListProcesses(p.ctx, h.ID); err != nil {
		return err
	}
	return p.showLease("processes", "Processes of "+h.AgentDID, h.Lease, v)
}
