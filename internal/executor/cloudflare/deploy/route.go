package deploy

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/cloudflare/cloudflare-go/v7/workers"
	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
)

// routesAtOnce is how many routes are requested at the same time.
const routesAtOnce = 8

// route tells whether a Worker answers at workers.dev. A local API server, which runs Workers on its own machine, also
// returns their address.
type route struct {
	Enabled  bool   `json:"enabled"`
	LocalURL string `json:"local_url"`
}

// url returns the address of a Worker, "" if it has no route.
func (r route) url(name, subdomain string) string {
	if !r.Enabled {
		return ""
	}
	return cmp.Or(r.LocalURL, "https://"+name+"."+subdomain+".workers.dev")
}

func (d *Deployer) routeOf(ctx context.Context, name string) (r route, err error) {
	err = d.api.call(ctx, http.MethodGet, "/workers/scripts/"+name+"/subdomain", nil, &r)
	return r, err
}

// ensureRoute creates the Worker's route, once all other parts exist.
func (d *Deployer) ensureRoute(ctx context.Context, want cloudflare.Deployment, s *inventory) error {
	if s.worker.Enabled {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var p workers.ScriptSubdomainNewParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	p.Enabled.Value, p.Enabled.Present = true, true
	p.PreviewsEnabled.Present = true // and false: previews would serve older versions
	if _, err := d.workers.Scripts.Subdomain.New(ctx, want.Name, p); err != nil {
		return d.fail(
			step{what: "Worker " + want.Name + ": give it its workers.dev route", changes: true, needs: permScripts}, err)
	}
	r, err := d.routeOf(ctx, want.Name)
	if err != nil {
		return d.fail(step{what: "Worker " + want.Name + ": read its route", needs: permScripts}, err)
	}
	r.Enabled = true // a read may not see the new route yet
	s.worker.route = r
	d.memory.trust(want.Name)
	return nil
}

// List implements cloudflare.Deployer.
func (d *Deployer) List(ctx context.Context, ledgerID string) ([]cloudflare.Site, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	subdomain, err := d.keptSubdomain(ctx)
	if err != nil {
		return nil, err
	}
	var scripts []listedScript
	if err := d.api.call(ctx, http.MethodGet, "/workers/scripts", nil, &scripts); err != nil {
		return nil, d.fail(step{what: "list its Workers", needs: permScripts}, err)
	}
	scripts = slices.DeleteFunc(scripts,
		func(s listedScript) bool { return !strings.HasPrefix(s.ID, cloudflare.DeploymentPrefix(ledgerID)) })
	if len(scripts) == 0 {
		return nil, nil
	}
	applications, err := d.listApplications(ctx, "of ledger "+ledgerID)
	if err != nil {
		return nil, err
	}
	return d.sites(ctx, scripts, applications, subdomain)
}

// listedScript is a Worker in a list.
type listedScript struct {
	ID       string `json:"id"`
	LocalURL string `json:"local_url"` // as in route
}

// sites returns the addresses of Workers. It assumes that each has a route, and asks only about those that did not
// answer, so the number of calls does not grow with the number of Workers. A Worker that is deleted meanwhile has no
// URL.
func (d *Deployer) sites(
	ctx context.Context, scripts []listedScript, applications []application, subdomain string,
) ([]cloudflare.Site, error) {
	byName := make(map[string]*application, len(applications))
	for i := range applications {
		byName[applications[i].Name] = &applications[i]
	}
	all := make([]cloudflare.Site, len(scripts))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(routesAtOnce)
	for i, s := range scripts {
		all[i] = cloudflare.Site{Name: s.ID, URL: route{true, s.LocalURL}.url(s.ID, subdomain)}
		if a := byName[s.ID]; a != nil {
			a.describe(&all[i])
		}
		if !d.memory.doubts(s.ID) {
			continue
		}
		group.Go(func() error {
			r, err := d.routeOf(ctx, s.ID)
			all[i].URL = r.url(s.ID, subdomain)
			if err == nil && r.Enabled {
				d.memory.trust(s.ID)
			}
			if isAbsent(err) {
				return nil
			}
			return d.fail(step{what: "Worker " + s.ID + ": read its route", needs: permScripts}, err)
		})
	}
	return all, group.Wait()
}
