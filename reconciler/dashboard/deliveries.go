package dashboard

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/dashboard/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// deliveriesPerPage is how many messages a page lists.
const deliveriesPerPage = 50

// deliveriesPage lists messages of the webhook.
type deliveriesPage struct {
	scope
	Status     string
	Tabs       []tab
	Deliveries []sandbox.StoredDelivery
	// First and Earlier are the URLs of the latest messages and of earlier ones, "" for none.
	First, Earlier string
}

// deliveries lists messages of the webhook, latest first.
func deliveries(p *page) error {
	s := p.scope
	v := deliveriesPage{scope: s, Status: p.query("status")}
	if v.Status == "" {
		v.Status = "all"
	}
	here := func(status, before string) string {
		return link.To(link.Root+"webhook", "environment", s.Environment, "status", status, "before", before)
	}
	statuses := []string{"all"}
	for _, status := range sandbox.DeliveryStatuses {
		statuses = append(statuses, string(status))
	}
	for _, status := range statuses {
		v.Tabs = append(v.Tabs, tab{status, here(status, ""), status == v.Status})
	}
	live, err := p.liveAddress(s.Environment, "")
	if err != nil {
		return err
	}
	f := sandbox.DeliveryFilter{
		EnvironmentID: s.Environment,
		Status:        sandbox.DeliveryStatus(v.Status),
		Before:        p.query("before"),
		Limit:         deliveriesPerPage + 1,
	}
	if v.Status == "all" {
		f.Status = ""
	}
	if s.Any {
		if v.Deliveries, err = p.service.ListDeliveries(p.ctx, f); err != nil {
			return err
		}
	}
	if len(v.Deliveries) > deliveriesPerPage {
		v.Deliveries = v.Deliveries[:deliveriesPerPage]
		v.Earlier = here(v.Status, v.Deliveries[deliveriesPerPage-1].Cursor())
	}
	if f.Before != "" {
		v.First = here(v.Status, "")
	}
	return p.show("deliveries", "Webhook", "webhook", live, v)
}

// deliveryPage is one message with its effect.
type deliveryPage struct {
	sandbox.StoredDelivery
	// Payload is the body, indented if it is JSON.
	Payload string
	// EndsOn are the conditions of the environment, nil if it does not exist.
	EndsOn []string
	// Leases are the leases that it ended and whose events are among the latest of the environment.
	Leases []sandbox.Event
}

// delivery shows a message of the webhook. The URL names its environment too, because a limited token may only see
// messages of its environments.
func delivery(p *page) error {
	id, environment := p.query("id"), p.query("environment")
	list, err := p.service.ListDeliveries(p.ctx, sandbox.DeliveryFilter{ID: id, EnvironmentID: environment, Limit: 1})
	if err != nil {
		return err
	}
	if id == "" || len(list) == 0 {
		return sandbox.Errorf(sandbox.NotFound,
			"message %q of the webhook does not exist: old messages are purged", id)
	}
	v := deliveryPage{StoredDelivery: list[0], Payload: list[0].Body}
	var b bytes.Buffer
	if json.Indent(&b, []byte(v.Body), "", "  ") == nil {
		v.Payload = b.String()
	}
	if v.Reason == sandbox.DeliveryNoCondition {
		e, err := p.service.GetEnvironment(p.ctx, v.EnvironmentID)
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
			return err
		}
		v.EndsOn = e.ExpiryConditions
	}
	if v.Matched > 0 {
		if v.Leases, err = p.matched(v.StoredDelivery); err != nil {
			return err
		}
	}
	return p.show("delivery", v.Type, "webhook", "", v)
}

// matched returns the leases that a message ended, from the latest events.
func (p *page) matched(d sandbox.StoredDelivery) ([]sandbox.Event, error) {
	events, err := p.service.ListEvents(p.ctx,
		sandbox.EventFilter{EnvironmentID: d.EnvironmentID, Type: string(sandbox.EventConditionApplied), Latest: true})
	return slices.DeleteFunc(events, func(e sandbox.Event) bool {
		var data struct {
			Delivery string `json:"delivery"`
		}
		return json.Unmarshal(e.Data, &data) != nil || data.Delivery != d.ID
	}), err
}
