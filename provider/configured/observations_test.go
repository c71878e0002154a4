package configured_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// counting is a read-only lease service that counts reads.
type counting struct {
	service.Leases
	environments int
	leases       []sandbox.Lease
	fails        error

	mu            sync.Mutex // guards the fields below
	alone, listed int
}

// of returns n leases of one environment.
func of(n int) *counting { return in(1, n) }

// in returns n leases, spread over environments in turn.
func in(environments, n int) *counting {
	c := &counting{environments: environments}
	for i := range n {
		_, environment, err := sandbox.ParseLeaseID(c.id(i))
		if err != nil {
			panic(err)
		}
		c.leases = append(c.leases, sandbox.Lease{ID: c.id(i), EnvironmentID: environment, Generation: 1})
	}
	return c
}

func (c *counting) id(i int) string {
	return sandbox.LeaseID(fmt.Sprintf("did:plc:%05d", i), fmt.Sprintf("game-%d", i%c.environments))
}

func (c *counting) ObserveLease(_ context.Context, id string) (sandbox.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alone++
	for _, l := range c.leases {
		if l.ID == id {
			return l, nil
		}
	}
	return sandbox.Lease{}, sandbox.Errorf(sandbox.NotFound, "there is no lease %s", id)
}

func (c *counting) ListLeases(_ context.Context, f sandbox.LeaseFilter) ([]sandbox.Lease, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed++
	var page []sandbox.Lease
	for _, l := range c.leases {
		if f.Observe && l.EnvironmentID == f.EnvironmentID && l.ID > f.After && len(page) < f.Limit {
			page = append(page, l)
		}
	}
	return page, c.fails
}

// readAll reads leases as Terraform does, some of them concurrently.
func readAll(t *testing.T, p *configured.Provider, c *counting, n int) {
	t.Helper()
	var readers sync.WaitGroup
	for first := range 10 {
		readers.Go(func() {
			for i := first; i < n; i += 10 {
				if l, err := p.Observe(t.Context(), c, c.id(i)); err != nil || l.ID != c.id(i) {
					t.Errorf("lease %d is read as %+v (%v)", i, l, err)
				}
			}
		})
	}
	readers.Wait()
}

func TestManyLeasesAreReadByOneList(t *testing.T) {
	t.Parallel()
	c := of(2000)
	readAll(t, &configured.Provider{}, c, 2000)
	// Four leases are read one by one, then three pages. The last page shows that no leases follow.
	if requests := c.alone + c.listed; requests > 8 {
		t.Errorf("2,000 leases took %d requests", requests)
	}
}

func TestLeasesOfManyEnvironmentsAreReadByAListOfEach(t *testing.T) {
	t.Parallel()
	for _, environments := range []int{20, 50} {
		c := in(environments, 2000)
		readAll(t, &configured.Provider{}, c, 2000)
		// Four of all leases are read one by one.
		if requests := c.alone + c.listed; requests > environments+4 {
			t.Errorf("2,000 leases in %d environments took %d requests", environments, requests)
		}
	}
}

func TestFewLeasesListNoEnvironment(t *testing.T) {
	t.Parallel()
	for _, environments := range []int{1, 3} {
		c := in(environments, 3)
		readAll(t, &configured.Provider{}, c, 3)
		if c.alone != 3 || c.listed != 0 {
			t.Errorf("3 leases in %d environments took %d readings and %d lists", environments, c.alone, c.listed)
		}
	}
}

func TestAChangedLeaseIsReadForItself(t *testing.T) {
	t.Parallel()
	c, p := of(20), &configured.Provider{}
	readAll(t, p, c, 20)
	c.leases[7].Generation = 2
	p.Changed(c.id(7))
	if l, err := p.Observe(t.Context(), c, c.id(7)); err != nil || l.Generation != 2 {
		t.Errorf("it is read as %+v (%v)", l, err)
	}
}

func TestWhatTheListDoesNotHaveIsReadForItself(t *testing.T) {
	t.Parallel()
	c, p := of(20), &configured.Provider{}
	readAll(t, p, c, 20)
	if _, err := p.Observe(t.Context(), c, c.id(20)); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("a lease that is not there: %v", err)
	}
}

func TestAListThatFailsKeepsNoLeaseFromBeingRead(t *testing.T) {
	t.Parallel()
	c := of(30)
	c.fails = sandbox.Errorf(sandbox.Unavailable, "one of them cannot be reached")
	readAll(t, &configured.Provider{}, c, 30)
	if c.alone != 30 || c.listed != 1 {
		t.Errorf("30 leases took %d readings and %d lists", c.alone, c.listed)
	}
}
