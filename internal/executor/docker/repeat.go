package docker

import (
	"errors"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/helper"
)

// repetition is a command that may be asked for once more, after its session was lost before it was started.
type repetition struct {
	of    channel.Request
	until time.Time
	// spent: its input is read only once.
	spent bool
}

// repetitionOf is taken before the command is asked for.
func repetitionOf(call helper.Call) repetition {
	return repetition{of: call.Request, until: time.Now().Add(channel.RepeatWithin), spent: call.Stdin != nil}
}

// request returns the request of the repetition, when there may be one: the first must have failed with this error.
func (r repetition) request(first error) (channel.Request, bool) {
	lost, ok := errors.AsType[*channel.Lost](first)
	if !ok || lost.Life == "" || r.spent || time.Now().After(r.until) {
		return channel.Request{}, false
	}
	again := r.of
	again.Life = lost.Life
	return again, true
}
