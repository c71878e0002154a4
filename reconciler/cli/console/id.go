package console

import (
	"context"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// LeaseID returns the id of a lease that a user named by its id or in the short form. Errors: Invalid if several
// leases have that form; NotFound if none has.
func LeaseID(ctx context.Context, service *client.Client, text string) (string, error) {
	at := strings.LastIndex(text, "@")
	if strings.Contains(text, "::") || at < 1 {
		return text, nil
	}
	filter := sandbox.LeaseFilter{EnvironmentID: text[at+1:], Limit: sandbox.MaxPage}
	leases, err := EveryPage(func(after string) ([]sandbox.Lease, error) {
		filter.After = after
		return service.ListLeases(ctx, filter)
	}, func(l sandbox.Lease) string { return l.ID })
	if err != nil {
		return "", err
	}
	leases = slices.DeleteFunc(leases, func(l sandbox.Lease) bool { return format.ShortLease(l.ID) != text })
	switch len(leases) {
	case 0:
		return "", sandbox.Errorf(sandbox.NotFound, "environment %s has no lease of an agent whose DID ends with :%s",
			text[at+1:], text[:at])
	case 1:
		return leases[0].ID, nil
	}
	ids := make([]string, len(leases))
	for i, l := range leases {
		ids[i] = l.ID
	}
	return "", exit.Usagef("%s could be %s: name the lease by its id", text, strings.Join(ids, " or "))
}

// NewMessageID returns an id for a message to which the user gave none.
func NewMessageID() string { return "msg_" + sandbox.RandomIDs(sandbox.SandboxIDLength) }
