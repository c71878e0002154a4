package dashboard

import (
	"io"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// eventsPerPage is how many events of a lease a page shows.
	eventsPerPage = 50
	// commandsPerPage is how many commands of a lease a page lists.
	commandsPerPage = 20
	// maxShownOutput limits the shown output of one stream, in bytes.
	maxShownOutput = 256 << 10
)

// leasePage is one lease.
type leasePage struct {
	sandbox.Lease
	Actions []action // possible actions of the caller
	Events  []sandbox.Event
	// Earlier is the URL of earlier events, "" for none.
	Earlier string
	Latest  string
	// Forgotten means that the events were purged.
	Forgotten bool
	Commands  []sandbox.Exec
	// More means that there are more commands.
	More bool
}

// Live reports whether the lease is usable.
func (l leasePage) Live() bool { return isLive(l.Lease) }

func isLive(l sandbox.Lease) bool {
	return l.Status == sandbox.LeasePending || l.Status == sandbox.LeaseActive
}

// lease shows one lease with its commands and events.
func lease(p *page) error {
	l, err := p.service.GetLease(p.ctx, p.r.PathValue("id"))
	if err != nil {
		return err
	}
	v := leasePage{Lease: l}
	for _, a := range actions {
		if p.may(a.operation) && a.applies(l) {
			v.Actions = append(v.Actions, a)
		}
	}
	if err := p.addEvents(&v); err != nil {
		return err
	}
	if l.PurgedAt.IsZero() {
		if v.Commands, err = p.service.ListExecs(p.ctx,
			sandbox.ExecFilter{LeaseID: l.ID, Limit: commandsPerPage + 1}); err != nil {
			return err
		}
	}
	if v.More = len(v.Commands) > commandsPerPage; v.More {
		v.Commands = v.Commands[:commandsPerPage]
	}
	live, err := p.liveAddress("", l.ID)
	if err != nil {
		return err
	}
	return p.show("lease", l.AgentDID, "leases", live, v)
}

// addEvents adds the sandbox's latest events up to the sequence in the URL, latest first.
func (p *page) addEvents(v *leasePage) error {
	last, err := p.number("before")
	if err != nil {
		return err
	}
	if last > 1 && last <= v.LastSequence {
		v.Latest, last = leasePath(v.ID), last-1
	} else {
		last = v.LastSequence
	}
	from := max(last-eventsPerPage, 0)
	events, err := p.service.ListEvents(p.ctx,
		sandbox.EventFilter{LeaseID: v.ID, SandboxID: v.SandboxID, FromSequence: from, Limit: int(last - from)})
	switch sandbox.CodeOf(err) {
	case "":
	case sandbox.EventSequenceExpired, sandbox.NotFound:
		v.Forgotten = true
		return nil
	default:
		return err
	}
	slices.Reverse(events)
	v.Events = events
	if from > 0 {
		v.Earlier = address(leasePath(v.ID), "before", itoa(from+1))
	}
	return nil
}

// commandPage is one command with its output.
type commandPage struct {
	sandbox.Exec
	Outputs []output
}

// output is the shown part of one stream.
type output struct {
	Name  string
	Text  string
	Bytes int64 // total, 0 while the command runs
	// Cut means that only the start is shown.
	Cut bool
	// Problem says why the output is not available.
	Problem string
}

// command shows one command with its output.
func command(p *page) error {
	ref := sandbox.ExecRef{LeaseID: p.r.PathValue("id"), ID: p.r.PathValue("exec")}
	e, err := p.service.GetExec(p.ctx, ref)
	if err != nil {
		return err
	}
	v := commandPage{Exec: e}
	for _, s := range []struct {
		stream sandbox.ExecStream
		name   string
		n      int64
	}{{sandbox.Stdout, "Standard output", e.StdoutBytes}, {sandbox.Stderr, "Standard error", e.StderrBytes}} {
		v.Outputs = append(v.Outputs, p.read(sandbox.OutputRequest{ExecRef: ref, Stream: s.stream}, s.name, s.n))
	}
	live, err := p.liveAddress("", e.LeaseID)
	if err != nil {
		return err
	}
	return p.show("exec", commandLine(e.Command), "leases", live, v)
}

// read returns the start of a stream.
func (p *page) read(r sandbox.OutputRequest, name string, n int64) output {
	o := output{Name: name, Bytes: n}
	if err := p.caller.Permit("read-exec"); err != nil {
		o.Problem = err.Error()
		return o
	}
	in, err := p.service.ReadExec(p.ctx, r)
	if err != nil {
		o.Problem = err.Error()
		return o
	}
	b, err := io.ReadAll(io.LimitReader(in, maxShownOutput+1))
	if closeErr := in.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		o.Problem = err.Error()
	}
	if o.Cut = len(b) > maxShownOutput; o.Cut {
		b = b[:maxShownOutput]
	}
	o.Text = string(b)
	return o
}
