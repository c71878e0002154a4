package deploy

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/cloudflare/cloudflare-go/v7/workers"
	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
)

// routesAtOnce is how many Workers are asked about at the same time.
const routesAtOnce = 8

// route tells whether a Worker answers at workers.dev. An API server that runs Workers on its own machine says
// where instead, beside what Cloudflare says.
type route struct {
	Enabled  bool   `json:"enabled"`
	LocalURL string `json:"local_url"`
}

// url is where a Worker answers, "" when it does not.
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

// ensureRoute lets the Worker answer, once all it needs is there.
func (d *Deployer) ensureRoute(ctx context.Context, want cloudflare.Deployment, s *standing) error {
	if s.worker.Enabled {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var p workers.ScriptSubdomainNewParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	p.Enabled.Value, p.Enabled.Present = true, true
	p.PreviewsEnabled.Present = true // and false: an older version would answer there
	if _, err := d.workers.Scripts.Subdomain.New(ctx, want.Name, p); err != nil {
		return d.fail(step{what: "Worker " + want.Name + ": give it its workers.dev route", changes: true, needs: permScripts}, err)
	}
	r, err := d.routeOf(ctx, want.Name)
	if err != nil {
		return d.fail(step{what: "Worker " + want.Name + ": read its route", needs: permScripts}, err)
	}
	r.Enabled = true // what reads may not have heard of it yet
	s.worker.route = r
	d.memory.keep(want.Name, r, d.now())
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
	var p workers.ScriptListParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	scripts, err := d.workers.Scripts.List(ctx, p)
	if err != nil {
		return nil, d.fail(step{what: "list its Workers", needs: permScripts}, err)
	}
	var names []string
	for _, script := range scripts.Result {
		if strings.HasPrefix(script.ID, cloudflare.DeploymentPrefix(ledgerID)) {
			names = append(names, script.ID)
		}
	}
	return d.sites(ctx, names, subdomain)
}

// sites tells where Workers answer. One that is deleted meanwhile has no URL.
func (d *Deployer) sites(ctx context.Context, names []string, subdomain string) ([]cloudflare.Site, error) {
	all := make([]cloudflare.Site, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(routesAtOnce)
	for i, name := range names {
		group.Go(func() error {
			r, err := d.keptRoute(ctx, name)
			all[i] = cloudflare.Site{Name: name, URL: r.url(name, subdomain)}
			if isAbsent(err) {
				return nil
			}
			return d.fail(step{what: "Worker " + name + ": read its route", needs: permScripts}, err)
		})
	}
	return all, group.Wait()
}
