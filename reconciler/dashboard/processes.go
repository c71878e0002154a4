package dashboard

import (
	"errors"
	"io"
	"math"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// processesPage lists the processes and the companions of a lease's sandbox.
type processesPage struct {
	leaseHead
	Processes []sandbox.Process
	// MayRead means that the caller may open the pages of processes.
	MayRead bool
}

// processes lists the processes and the companions of a lease's current generation.
func processes(p *page) error {
	h, err := p.leaseHead("processes")
	if err != nil {
		return err
	}
	v := processesPage{leaseHead: h, MayRead: p.may("read-process")}
	if v.Processes, err = p.service.ListProcesses(p.ctx, h.ID); err != nil {
		return err
	}
	return p.showLease("processes", "Processes of "+h.AgentDID, h.Lease, v)
}

// processPage is one process with the end of its log.
type processPage struct {
	leaseHead
	Process sandbox.Process
	// Asleep means that reading the log would wake the sandbox, so the page does not read it.
	Asleep bool
	// Problem says why there is no log.
	Problem string
	Log     string
	// Cut means that only the end is shown.
	Cut bool
}

// process shows a process with the end of its log. It does not wake a sandbox, and does not follow the lease, because
// each look is a use of the sandbox.
func process(p *page) error {
	h, err := p.leaseHead("processes")
	if err != nil {
		return err
	}
	ref := sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: h.ID}, Name: p.r.PathValue("process")}
	v := processPage{leaseHead: h}
	if v.Process, err = p.service.GetProcess(p.ctx, ref); err != nil {
		return err
	}
	ref.Generation = h.Generation
	switch {
	case !h.Live():
		v.Problem = "The lease has ended, and the log is gone."
	case h.Phase != sandbox.PhaseAwake:
		v.Asleep = true
	default:
		err = p.readLog(&v, ref)
	}
	switch sandbox.CodeOf(err) {
	case "":
	case sandbox.NotFound, sandbox.Conflict, sandbox.LeaseEnded, sandbox.Unavailable, sandbox.Failed:
		v.Problem = err.Error()
	default:
		return err
	}
	return p.show("process", v.Process.Name, "leases", "", v)
}

// readLog reads the end of a log.
func (p *page) readLog(v *processPage, ref sandbox.ProcessRef) error {
	end, err := p.service.ReadProcess(p.ctx, sandbox.LogRequest{ProcessRef: ref, Offset: math.MaxInt64})
	if err != nil {
		return err
	}
	if err := end.Close(); err != nil {
		return err
	}
	from := max(end.Offset-maxShownOutput, 0)
	log, err := p.service.ReadProcess(p.ctx, sandbox.LogRequest{ProcessRef: ref, Offset: from})
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(log, maxShownOutput))
	v.Cut, v.Log = log.Offset > 0, strings.ToValidUTF8(string(b), "\ufffd")
	return errors.Join(err, log.Close())
}
