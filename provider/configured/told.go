package configured

import (
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// told records the warnings of one run of Terraform, by kind and by id of the environment or lease. It is safe for
// concurrent use.
type told struct {
	mu   sync.Mutex // guards what
	what map[[2]string]bool
}

// TellOnce reports whether this run has not yet warned with this kind about an environment's leases. It then records
// the warning.
func (p *Provider) TellOnce(kind, environment string) bool {
	p.told.mu.Lock()
	defer p.told.mu.Unlock()
	return p.told.once(kind, environment)
}

// Untold returns the leases that no warning of this kind has reported in this run, and records them as reported. It
// returns none if the lease about, which may be "", was reported before.
func (p *Provider) Untold(kind, about string, leases []sandbox.Lease) (untold []sandbox.Lease) {
	p.told.mu.Lock()
	defer p.told.mu.Unlock()
	if p.told.what[[2]string{kind, about}] {
		return nil
	}
	for _, l := range leases {
		if p.told.once(kind, l.ID) {
			untold = append(untold, l)
		}
	}
	return untold
}

// once reports whether this is the first warning of this kind about an id. The caller holds mu.
func (t *told) once(kind, id string) bool {
	key := [2]string{kind, id}
	if t.what[key] {
		return false
	}
	if t.what == nil {
		t.what = make(map[[2]string]bool)
	}
	t.what[key] = true
	return true
}
