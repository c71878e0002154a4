package configured

import "sync"

// told are the warnings about several leases that one run of Terraform has given. It is safe for concurrent use.
type told struct {
	mu   sync.Mutex // guards what
	what map[[2]string]bool
}

// TellOnce reports whether a warning of this kind about an environment's leases has not been given in this run. It is
// given then.
func (p *Provider) TellOnce(kind, environment string) bool {
	p.told.mu.Lock()
	defer p.told.mu.Unlock()
	key := [2]string{kind, environment}
	if p.told.what[key] {
		return false
	}
	if p.told.what == nil {
		p.told.what = make(map[[2]string]bool)
	}
	p.told.what[key] = true
	return true
}
