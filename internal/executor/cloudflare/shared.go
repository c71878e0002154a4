package cloudflare

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The Worker is uploaded with the images that starts may name, so a new image needs a new version of a shared Worker.
// Environments that arrive at the same time share one version (queue). Another process may upload the Worker without an
// image that was just added. So each process records its environment in the Worker's database once its image is
// uploaded, and then checks that the Worker has the images of all recorded environments.

const (
	// shareRounds bounds the attempts to add an environment to a shared Worker that other processes deploy meanwhile.
	shareRounds = 3
	// closedWait is how long another process may take to delete a Worker that it has closed. A process that takes longer
	// is considered dead.
	closedWait = 30 * time.Second
)

// queue holds the environments that wait to be added to a shared Worker. One of them deploys it for all.
type queue struct {
	turn chan struct{} // holds one value while the Worker is deployed or deleted

	mu      sync.Mutex // guards what follows
	waiting []*arrival
}

// arrival is an environment in a queue.
type arrival struct {
	image    string
	deployed *Site // nil before the Worker has its image
}

func (q *queue) add(a *arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a.deployed = nil
	if !slices.Contains(q.waiting, a) {
		q.waiting = append(q.waiting, a)
	}
}

func (q *queue) remove(a *arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(b *arrival) bool { return a == b })
}

// all returns the waiting arrivals, and the site if another one has deployed the image of a; otherwise nil.
func (q *queue) all(a *arrival) (waiting []*arrival, done *Site) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.waiting), a.deployed
}

func (q *queue) settle(with []*arrival, site Site) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range with {
		a.deployed = &site
	}
}

// begin waits for a turn. Errors: Unavailable.
func (q *queue) begin(ctx context.Context) (end func(), err error) {
	select {
	case q.turn <- struct{}{}:
		return func() { <-q.turn }, nil
	case <-ctx.Done():
		return nil, unavailable(ctx.Err())
	}
}

// queueOf returns the queue of a shared Worker.
func (e *Executor) queueOf(name string) *queue {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.queues[name] == nil {
		e.queues[name] = &queue{turn: make(chan struct{}, 1)}
	}
	return e.queues[name]
}

// share adds an environment to the Worker of its ledger and returns a client of it. image is the environment's name
// for the image of d.
func (e *Executor) share(ctx context.Context, ref driver.EnvironmentRef, image string, d Deployment) (*Worker, error) {
	q, mine := e.queueOf(d.Name), &arrival{image: d.Image}
	defer q.remove(mine)
	for round, closedSince := 0, (time.Time{}); round < shareRounds; {
		q.add(mine)
		site, err := e.arrive(ctx, ref, d, q, mine)
		if err != nil {
			return nil, err
		}
		w, err := e.sharedLine(site)
		if err == nil {
			err = e.awaitAnswer(ctx, w, ref)
		}
		if err != nil {
			return nil, err
		}
		closed, err := w.PutEnvironment(ctx, ref, image, d.Image)
		if err != nil {
			return nil, err
		}
		if closed {
			now := e.cfg.Now()
			if closedSince.IsZero() {
				closedSince = now
			}
			if err := e.outlast(ctx, d.Name, q, now.Sub(closedSince)); err != nil {
				return nil, err
			}
			continue
		}
		complete, err := hasAll(ctx, w, ref, site, round == 0)
		if err != nil || complete {
			return w, err
		}
		round++
	}
	return nil, sandbox.Errorf(sandbox.Unavailable, "cloudflare: environment %s: other processes deploy Worker %s again "+
		"and again, without all images of its environments (repeat it)", ref.EnvironmentID, d.Name)
}

// outlast waits while another process deletes a Worker, and deletes it if that takes longer than closedWait.
func (e *Executor) outlast(ctx context.Context, name string, q *queue, waited time.Duration) error {
	if waited < closedWait {
		select {
		case <-time.After(e.cfg.Poll / 5):
			return nil
		case <-ctx.Done():
			return unavailable(ctx.Err())
		}
	}
	end, err := q.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return e.deleteShared(ctx, name)
}

// hasAll reports whether site has the images of all environments that are recorded in the Worker's database. If ask is
// set, the Worker itself must also report them.
func hasAll(ctx context.Context, w *Worker, ref driver.EnvironmentRef, site Site, ask bool) (bool, error) {
	all, err := environmentsOf(ctx, w, ref)
	if err != nil {
		return false, err
	}
	lacks := func(has func(name string) bool) bool {
		return slices.ContainsFunc(all, func(env Environment) bool { return !has(ImageName(env.Prepared)) })
	}
	if lacks(func(name string) bool { return site.Images[name] != "" }) {
		return false, nil
	}
	if !ask { // site was read after the environment was recorded
		return true, nil
	}
	answer, err := w.introduce(ctx)
	return !lacks(func(name string) bool { return slices.Contains(answer.Images, name) }), err
}

// arrive deploys a shared Worker with the images of all that wait, unless another arrival has done so.
func (e *Executor) arrive(
	ctx context.Context, ref driver.EnvironmentRef, d Deployment, q *queue, mine *arrival,
) (Site, error) {
	end, err := q.begin(ctx)
	if err != nil {
		return Site{}, err
	}
	defer end()
	waiting, done := q.all(mine)
	if done != nil {
		return *done, nil
	}
	site, err := e.deployShared(ctx, ref, d, waiting)
	if err != nil && len(waiting) > 1 { // an image of another environment may be the cause
		waiting = []*arrival{mine}
		site, err = e.deployShared(ctx, ref, d, waiting)
	}
	if err == nil {
		q.settle(waiting, site)
	}
	return site, err
}

// deployShared deploys a shared Worker if it differs, with the images of arriving environments. The caller has the
// turn.
func (e *Executor) deployShared(
	ctx context.Context, ref driver.EnvironmentRef, d Deployment, arriving []*arrival,
) (Site, error) {
	p, err := e.sharedPlace(ctx, ref, true)
	if err != nil {
		return Site{}, err
	}
	var images []string
	for _, a := range arriving {
		images = append(images, a.image)
	}
	if err := d.pin(p, e.pinsOf(ctx, ref, p), ref.EnvironmentID, images...); err != nil {
		return Site{}, err
	}
	if p.site.Name != "" && len(d.Differences(p.site)) == 0 {
		return p.site, nil
	}
	site, err := e.deployer.Deploy(ctx, d)
	e.changed()
	return site, err
}

// leave removes an environment from a shared Worker, and deletes the Worker after the last one.
func (e *Executor) leave(ctx context.Context, ref driver.EnvironmentRef, p place) error {
	own := DeploymentName(ref.LedgerID, ref.EnvironmentID)
	w, err := e.lineForRemoval(ctx, ref, p)
	if err != nil {
		return err
	}
	if w != nil {
		if err := w.RemoveEnvironment(ctx, ref); err != nil {
			return err
		}
	}
	e.forget(own)
	if err := e.deployer.RemoveImages(ctx, own); err != nil || p.site.Name == "" {
		return err
	}
	q := e.queueOf(p.name)
	end, err := q.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if waiting, _ := q.all(&arrival{}); len(waiting) > 0 {
		return nil
	}
	if w != nil { // else its sandboxes have gone with their Durable Objects
		closed, err := w.CloseLedger(ctx, ref.Instance, ref.LedgerID)
		if err != nil || !closed {
			return err
		}
	}
	return e.deleteShared(ctx, p.name)
}

// lineForRemoval returns a client of a shared Worker, or nil if there is no Worker. An incomplete deployment gets its
// route, so that the Worker can list its environments.
func (e *Executor) lineForRemoval(ctx context.Context, ref driver.EnvironmentRef, p place) (*Worker, error) {
	switch {
	case p.site.Name == "" || slices.Contains(p.site.Missing, PartWorker):
		return nil, nil
	case p.site.URL != "":
		return e.sharedLine(p.site)
	}
	site, err := e.deployer.Route(ctx, p.name)
	if err != nil {
		return nil, err
	}
	w, err := e.sharedLine(site)
	if err != nil {
		return nil, err
	}
	return w, e.awaitAnswer(ctx, w, ref)
}

// deleteShared deletes a shared Worker. The caller has the turn.
func (e *Executor) deleteShared(ctx context.Context, name string) error {
	err := e.deployer.Delete(ctx, name)
	e.mu.Lock()
	if w := e.lines[name]; w != nil {
		e.former = append(e.former, &deployed{Worker: w})
		delete(e.lines, name)
	}
	e.mu.Unlock()
	e.changed()
	return err
}

// changed invalidates the cached lists of deployments and the cached shared sites.
func (e *Executor) changed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.sites)
	e.deployed++
}

// learnShared caches the environments of a shared place.
func (e *Executor) learnShared(ledgerID string, p place) error {
	w, err := e.sharedLine(p.site)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, env := range p.environments {
		e.note(DeploymentName(ledgerID, env.ID),
			&deployed{Worker: w, image: env.Image, prepared: cmp.Or(env.Prepared, env.Image), shared: true})
	}
	return nil
}
