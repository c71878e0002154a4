package deploy

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// usageQuery asks for the billed usage by day: that of containers and of the machines that run them
// (developers.cloudflare.com/analytics/graphql-api/tutorials/querying-container-metrics, read 2026-11).
const usageQuery = `query ContainersUsage($account: String!, $applications: [String!], $from: Date!, $last: Date!) {
  viewer {
    accounts(filter: {accountTag: $account}) {
      containersUsageAdaptiveGroups(
        limit: 10000
        filter: {applicationId_in: $applications, date_geq: $from, date_leq: $last}
        orderBy: [date_ASC]
      ) {
        dimensions { applicationId date }
        sum { cpuTimeSec allocatedMemory allocatedDisk }
      }
    }
  }
}`

// usageAnswer is the answer to usageQuery. A refused query has errors, and status 200.
type usageAnswer struct {
	Data struct {
		Viewer struct {
			Accounts []struct {
				Groups []usageGroup `json:"containersUsageAdaptiveGroups"`
			} `json:"accounts"`
		} `json:"viewer"`
	} `json:"data"`
	Errors []struct {
		Message    string `json:"message"`
		Extensions struct {
			Code string `json:"code"`
		} `json:"extensions"`
	} `json:"errors"`
}

type usageGroup struct {
	Dimensions struct {
		Application string `json:"applicationId"`
		Date        string `json:"date"`
	} `json:"dimensions"`
	Sum struct {
		CPUSeconds    float64 `json:"cpuTimeSec"`
		MemorySeconds float64 `json:"allocatedMemory"` // in bytes
		DiskSeconds   float64 `json:"allocatedDisk"`   // in bytes
	} `json:"sum"`
}

// Units of sizes: Cloudflare's memory is in MiB, its disks are in MB.
const (
	bytesOfMemoryMB = 1 << 20
	bytesOfDiskMB   = 1e6
)

// maxGroups is the limit of usageQuery: an answer has a group for each application and day. maxApplications bounds the
// applications in one query.
const (
	maxGroups       = 10_000
	maxApplications = 1000
)

// perQuery returns how many applications one query may ask for, so that no group is cut off.
func perQuery(from, to time.Time) int {
	days := int(to.Sub(from)/(24*time.Hour)) + 1
	return max(1, min(maxApplications, maxGroups/days))
}

// Metered implements cloudflare.Deployer, with one call and one query for up to 1,000 deployments.
func (d *Deployer) Metered(
	ctx context.Context, names []string, from, to time.Time,
) (map[string][]driver.Metered, error) {
	all, err := d.listApplications(ctx, "usage")
	if err != nil {
		return nil, err
	}
	nameOf := make(map[string]string, len(names))
	found := make(map[string][]driver.Metered, len(names))
	var ids []string
	for _, a := range all {
		if slices.Contains(names, a.Name) {
			nameOf[a.ID], found[a.Name] = a.Name, []driver.Metered{}
			ids = append(ids, a.ID)
		}
	}
	for some := range slices.Chunk(ids, perQuery(from, to)) {
		answer, err := d.askUsage(ctx, map[string]any{
			"account":      d.account,
			"applications": some,
			"from":         from.Format(time.DateOnly),
			"last":         to.AddDate(0, 0, -1).Format(time.DateOnly),
		})
		if err != nil {
			return nil, d.fail(step{what: "read the usage of container applications", needs: PermAnalytics}, err)
		}
		for _, account := range answer.Data.Viewer.Accounts {
			for _, g := range account.Groups {
				day, err := g.metered()
				if err != nil {
					return nil, sandbox.Errorf(sandbox.Failed,
						"cloudflare: account %s: read the usage of application %s: %w", d.account, g.Dimensions.Application, err)
				}
				name := nameOf[g.Dimensions.Application]
				found[name] = append(found[name], day)
			}
		}
	}
	return found, nil
}

func (g usageGroup) metered() (driver.Metered, error) {
	day, err := time.Parse(time.DateOnly, g.Dimensions.Date)
	return driver.Metered{
		Day: day, CPU: time.Duration(g.Sum.CPUSeconds * float64(time.Second)),
		MemoryMBSeconds: g.Sum.MemorySeconds / bytesOfMemoryMB, DiskMBSeconds: g.Sum.DiskSeconds / bytesOfDiskMB,
	}, err
}

// askUsage sends usageQuery. It turns the errors of a refused query into a *refusal.
func (d *Deployer) askUsage(ctx context.Context, variables map[string]any) (answer usageAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	body, err := json.Marshal(map[string]any{"query": usageQuery, "variables": variables})
	if err != nil {
		return answer, err
	}
	if err := d.api.exchange(ctx, http.MethodPost, d.api.root+"/graphql", "application/json", body,
		&answer, true); err != nil {
		return answer, err
	}
	if len(answer.Errors) == 0 {
		return answer, nil
	}
	refused := &refusal{status: http.StatusUnprocessableEntity}
	for _, e := range answer.Errors {
		refused.text += "; " + e.Message
		if e.Extensions.Code == "authz" {
			refused.status = http.StatusForbidden
		}
	}
	refused.text = strings.TrimPrefix(refused.text, "; ")
	return answer, refused
}
