package dashboard

import (
	"io"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// commandsPerPage is how many commands of a lease a page lists.
	commandsPerPage = 50
	// maxShownOutput limits the shown output of one stream, in bytes.
	maxShownOutput = 256 << 10
)

// commandsPage lists the commands of a lease.
type commandsPage struct {
	leaseHead
	State    string
	States   []tab
	Commands []sandbox.Exec
	// First and Earlier are the URLs of the latest commands and of earlier ones, "" for none.
	First, Earlier string
}

// commandStates are the filters of commands.
var commandStates = []string{
	"all", string(sandbox.ExecRunning), string(sandbox.ExecFinished), string(sandbox.ExecFailed),
	string(sandbox.ExecCancelled),
}

// commands lists the commands of a lease in all generations, latest first.
func commands(p *page) error {
	h, err := p.leaseHead("commands")
	if err != nil {
		return err
	}
	v := commandsPage{leaseHead: h, State: p.orDefault("state", commandStates[0])}
	if !slices.Contains(commandStates, v.State) {
		return sandbox.InvalidFields("the page's URL",
			[]sandbox.Field{{Name: "state", Problem: "must be all, running, finished, failed or cancelled"}})
	}
	here := func(state, before string) string {
		return link.To(link.Lease(h.ID, "commands"), "state", state, "before", before)
	}
	for _, state := range commandStates {
		v.States = append(v.States, tab{state, here(state, ""), state == v.State})
	}
	f := sandbox.ExecFilter{
		LeaseID: h.ID, State: sandbox.ExecState(v.State), Before: p.query("before"), Limit: commandsPerPage + 1,
	}
	if v.State == "all" {
		f.State = ""
	}
	if v.Commands, err = p.service.ListExecs(p.ctx, f); err != nil {
		return err
	}
	if len(v.Commands) > commandsPerPage {
		v.Commands = v.Commands[:commandsPerPage]
		v.Earlier = here(v.State, v.Commands[commandsPerPage-1].ID)
	}
	if f.Before != "" {
		v.First = here(v.State, "")
	}
	return p.showLease("commands", "Commands of "+h.AgentDID, h.Lease, v)
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
	return p.show("exec", format.CommandLine(e.Command), "leases", live, v)
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
