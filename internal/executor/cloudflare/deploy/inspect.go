package deploy

import (
	"context"
	"sync"

	"github.com/cloudflare/cloudflare-go/v7/workers"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// inventory has the existing parts of a deployment.
type inventory struct {
	name, account string
	subdomain     string
	worker        *worker // nil: absent
	database      string  // its id; "": absent
	bucket        bool
	applications  []application // those with its name or its Worker's namespace
	rolledOut     bool          // the application's settings are rolled out
}

func (s *inventory) empty() bool {
	return s.worker == nil && s.database == "" && !s.bucket && len(s.applications) == 0
}

// inspect reads all parts concurrently, so that its error names all missing permissions.
func (d *Deployer) inspect(ctx context.Context, name string) (*inventory, error) {
	s := &inventory{name: name, account: d.account}
	var everyApplication []application
	errs := make([]error, 5)
	var wg sync.WaitGroup
	for i, ask := range []func() error{
		func() (err error) { s.subdomain, err = d.subdomain(ctx); return err },
		func() (err error) { s.worker, err = d.findWorker(ctx, name); return err },
		func() (err error) { s.database, err = d.findDatabase(ctx, name); return err },
		func() (err error) { s.bucket, err = d.findBucket(ctx, name); return err },
		func() (err error) { everyApplication, err = d.listApplications(ctx, name); return err },
	} {
		wg.Go(func() { errs[i] = ask() })
	}
	wg.Wait()
	if err := join(errs...); err != nil {
		return nil, err
	}
	if s.worker != nil && !s.worker.ours() {
		return nil, sandbox.Errorf(sandbox.Conflict,
			"cloudflare: account %s: there is a Worker called %s that was not deployed from here: rename or delete it",
			d.account, name)
	}
	for _, a := range everyApplication {
		if a.Name == name || (s.worker != nil && a.namespace() == s.worker.namespace) {
			s.applications = append(s.applications, a)
		}
	}
	err := d.findPinned(ctx, s)
	if a := s.application(); err == nil && a != nil {
		s.rolledOut, err = d.isRolledOut(ctx, name, *a)
	}
	return s, err
}

// application returns the application of the Worker's Durable Objects, or nil.
func (s *inventory) application() *application {
	for i, a := range s.applications {
		if s.worker != nil && a.namespace() == s.worker.namespace {
			return &s.applications[i]
		}
	}
	return nil
}

// site returns the deployment as cloudflare.Site.
func (s *inventory) site() cloudflare.Site {
	site := cloudflare.Site{Name: s.name, DatabaseID: s.database}
	lacks := func(part cloudflare.Part, there bool) {
		if !there {
			site.Missing = append(site.Missing, part)
		}
	}
	a := s.application()
	lacks(cloudflare.PartDatabase, s.database != "")
	lacks(cloudflare.PartBucket, s.bucket)
	lacks(cloudflare.PartWorker, s.worker != nil)
	if w := s.worker; w != nil {
		lacks(cloudflare.PartSettings, w.settings == s.settings())
		site.NamespaceID, site.VersionID = w.namespace, w.version
		site.ScriptDigest, site.SigningKeyDigest, site.Variables = w.scriptDigest, w.keyDigest, w.variables
		site.Policy, site.Images = w.policy, w.images
		site.URL = w.url(s.name, s.subdomain)
	}
	lacks(cloudflare.PartApplication, a != nil)
	if a != nil {
		lacks(cloudflare.PartRollout, s.rolledOut)
		a.describe(&site)
	}
	lacks(cloudflare.PartRoute, s.worker != nil && s.worker.Enabled)
	return site
}

// subdomain returns the account's workers.dev subdomain, "" if it has none.
func (d *Deployer) subdomain(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var p workers.SubdomainGetParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	answer, err := d.workers.Subdomains.Get(ctx, p)
	if isAbsent(err) {
		return "", nil
	}
	if err != nil {
		return "", d.failSubdomain(err)
	}
	return answer.Subdomain, nil
}

func (d *Deployer) failSubdomain(err error) error {
	return d.fail(step{what: "find its workers.dev subdomain", needs: permScripts}, err)
}
