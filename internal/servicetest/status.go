package servicetest

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var statusTests = []test{
	{"SandboxStandsWhereItsEventsTell", sandboxStandsWhereItsEventsTell},
	{"SandboxThatSleepsByStopIsStopped", sandboxThatSleepsByStopIsStopped},
	{"IdleSandboxIsStoppedWithItsReason", idleSandboxIsStoppedWithItsReason},
	{"VanishedSandboxSaysWhyItFailed", vanishedSandboxSaysWhyItFailed},
	{"LeaseOfThePastIsDeleting", leaseOfThePastIsDeleting},
}

// wantStatus checks the state of ann's sandbox in both ways to read a lease, and that its events agree.
func (w *world) wantStatus(want sandbox.SandboxState, why sandbox.StopReason, failed sandbox.Reason) sandbox.Lease {
	w.Helper()
	l := w.lease(ann)
	listed := must(w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{}))(w)
	for _, got := range []sandbox.SandboxStatus{l.SandboxStatus, listed[0].SandboxStatus} {
		if got.SandboxState != want || got.StopReason != why || got.ErrorCode != failed ||
			(got.ErrorMessage == "") != (failed == "") {
			w.Errorf("the status of the sandbox is %+v, want %s, %q, %q", got, want, why, failed)
		}
	}
	var told sandbox.SandboxState
	var since time.Time
	for _, e := range must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: l.SandboxID}))(w) {
		if next := told.After(e.Type); next != told {
			told, since = next, e.At
		}
	}
	if told != want || !l.StateChangedAt.Equal(since) {
		w.Errorf("the events tell %s since %v, the lease %s since %v", told, since, l.SandboxState, l.StateChangedAt)
	}
	return l
}

// wantRunning checks what a lease says about its sandbox, which became ready at its last event.
func (w *world) wantRunning(l sandbox.Lease) {
	w.Helper()
	if !l.StartedAt.Equal(l.StateChangedAt) || l.WorkspacePath != "/workspace" {
		w.Errorf("ready since %v, it was started at %v, with workspace %q", l.StateChangedAt, l.StartedAt, l.WorkspacePath)
	}
}

func sandboxStandsWhereItsEventsTell(w *world) {
	w.environment()
	w.acquire(ann)
	w.wantRunning(w.wantStatus(sandbox.SandboxReady, "", ""))
	w.Advance(time.Minute)
	must(w.Service.Sleep(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	if l := w.wantStatus(sandbox.SandboxAsleep, sandbox.StopRequest, ""); !l.StartedAt.IsZero() {
		w.Errorf("asleep, it was started at %v", l.StartedAt)
	}
	w.Advance(time.Minute)
	must(w.Service.Wake(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	w.wantRunning(w.wantStatus(sandbox.SandboxReady, "", ""))

	w.FailKills(true)
	_, err := w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease})
	if err == nil {
		w.Error("a release returned no failure")
	}
	w.wantStatus(sandbox.SandboxDeleting, "", "")
	w.FailKills(false)
	w.Advance(time.Minute)
	w.wantStatus(sandbox.SandboxDeleted, "", "")
}

// kinds returns the types of a sandbox's events from one type on, and the data of the first.
func (w *world) kinds(sandboxID string, from sandbox.EventType) ([]sandbox.EventType, map[string]any) {
	w.Helper()
	var kinds []sandbox.EventType
	var data map[string]any
	for _, e := range must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: sandboxID}))(w) {
		if kinds == nil && e.Type != from {
			continue
		}
		if kinds == nil && len(e.Data) > 0 {
			if err := json.Unmarshal(e.Data, &data); err != nil {
				w.Fatal(err)
			}
		}
		kinds = append(kinds, e.Type)
	}
	return kinds, data
}

func sandboxThatSleepsByStopIsStopped(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.SleepMode = sandbox.SleepStop })
	w.acquire(ann)
	must(w.Service.Sleep(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	l := w.wantStatus(sandbox.SandboxStopped, sandbox.StopRequest, "")
	must(w.Service.Wake(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	w.wantStatus(sandbox.SandboxReady, "", "")
	kinds, data := w.kinds(l.SandboxID, sandbox.EventStopRequested)
	if want := []sandbox.EventType{
		sandbox.EventStopRequested, sandbox.EventStopped, sandbox.EventAwake,
	}; !slices.Equal(kinds, want) || data["reason"] != "request" {
		w.Errorf("the events are %q with %v, want %q", kinds, data, want)
	}
}

func idleSandboxIsStoppedWithItsReason(w *world) {
	idle := sandbox.Duration(10 * time.Minute)
	w.environment(func(p *sandbox.PutEnvironment) { p.SleepMode, p.SleepAfter = sandbox.SleepStop, &idle })
	w.acquire(ann)
	w.Advance(idle.D())
	l := w.wantStatus(sandbox.SandboxStopped, sandbox.StopIdle, "")
	kinds, data := w.kinds(l.SandboxID, sandbox.EventStopRequested)
	if want := []sandbox.EventType{sandbox.EventStopRequested, sandbox.EventStopped}; !slices.Equal(kinds, want) ||
		data["reason"] != "idle_ttl" {
		w.Errorf("the events are %q with %v, want %q", kinds, data, want)
	}
}

func vanishedSandboxSaysWhyItFailed(w *world) {
	w.environment()
	l := w.acquire(ann)
	w.Remove(l.SandboxID)
	w.Advance(time.Minute)
	w.wantStatus(sandbox.SandboxDeleted, "", sandbox.ReasonVanished)
	kinds, data := w.kinds(l.SandboxID, sandbox.EventFailed)
	want := []sandbox.EventType{
		sandbox.EventFailed, sandbox.EventEnded, sandbox.EventDeleteRequested, sandbox.EventDeleted,
	}
	if !slices.Equal(kinds, want) || data["error_code"] != "sandbox_vanished" || data["error_message"] == "" {
		w.Errorf("the events are %q with %v, want %q", kinds, data, want)
	}
}

func leaseOfThePastIsDeleting(w *world) {
	w.environment()
	ends := w.acquire(ann).ExpiresAt
	w.Pass(ends.Sub(w.Now()))
	if l := w.lease(ann); l.SandboxState != sandbox.SandboxDeleting || !l.StateChangedAt.Equal(ends) {
		w.Errorf("its status is %+v, and it ended at %v", l.SandboxStatus, ends)
	}
}
