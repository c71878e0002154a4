package llm

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config is the body of a control request. The broker keeps it only in memory: a gateway that restarts has no routes
// until the next request.
type Config struct {
	Environment string           `json:"environment"`
	Account     string           `json:"account"` // the environment's owner
	Routes      map[string]Route `json:"routes"`
	// Month is the month (UTC, as "2006-01") of Recorded and Cap.
	Month string `json:"month,omitempty"`
	// Recorded is what the ledger has recorded of the month's ended calls, by route. The broker raises its own sums to it,
	// because they are lost with its volume.
	Recorded map[string]Used `json:"recorded,omitempty"`
	// Cap limits the cost of all calls since the beginning of Month; nil means no budget. In a later month, the remainder
	// applies until the next Config.
	Cap *sandbox.NanoUSD `json:"cap_usd,omitempty"`
}

// Route is a route with its key. The sender fills in all defaults of the LLMRoute.
type Route struct {
	sandbox.LLMRoute
	Key sandbox.Secret `json:"key"`
}

// Used is the use of calls.
type Used struct {
	USD      sandbox.NanoUSD `json:"usd"`
	Requests int64           `json:"requests"`
	Tokens   int64           `json:"tokens"`
}

func (u Used) plus(o Used) Used {
	return Used{u.USD + o.USD, u.Requests + o.Requests, u.Tokens + o.Tokens}
}

// Caller is the calling sandbox, with its agent and lease.
type Caller struct {
	Sandbox, Agent, Lease string
	Generation            int64
}

// Hash identifies the environment, the account, and the routes with their keys. It omits what changes with each call.
func (c Config) Hash() (string, error) {
	b, err := json.Marshal(Config{Environment: c.Environment, Account: c.Account, Routes: c.Routes})
	if err != nil {
		return "", fmt.Errorf("hash the LLM routes: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8]), nil
}

// monthForm is the format of a month.
const monthForm = "2006-01"

var routeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// validate returns the first problem. Its errors never contain a key.
func (c Config) validate() error {
	if c.Month != "" {
		if _, err := time.Parse(monthForm, c.Month); err != nil {
			return fmt.Errorf("set the LLM routes: the month must be such as 2026-11, not %.32q", c.Month)
		}
	}
	if c.Month == "" && (c.Cap != nil || len(c.Recorded) > 0) {
		return errors.New("set the LLM routes: cap_usd and recorded need the month that they are for")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Routes)) {
		if !routeName.MatchString(name) {
			return fmt.Errorf("set the LLM routes: %.64q is not the name of a route", name)
		}
		if err := c.Routes[name].validate(); err != nil {
			return fmt.Errorf("set LLM route %s: %w", name, err)
		}
	}
	return nil
}

func (r Route) validate() error {
	if !slices.Contains(sandbox.LLMAPIs, r.API) {
		return fmt.Errorf("its API must be one of %v, not %.32q", sandbox.LLMAPIs, r.API)
	}
	u, err := url.Parse(r.Upstream)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return errors.New("its upstream must be an address such as https://api.openai.com")
	}
	key := r.key()
	if key == "" {
		return errors.New("it has no key: give the secret of its credential a value")
	}
	if strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return errors.New("its key must be visible ASCII characters on one line: check the secret of its credential")
	}
	if len(r.Models) == 0 {
		return errors.New("it has no models")
	}
	for name, m := range r.Models {
		if m.CachedInput == nil || m.CacheWrite == nil || m.MaxInputTokens <= 0 || m.MaxOutputTokens <= 0 {
			return fmt.Errorf("model %.128q lacks prices or bounds: the sender must fill in the defaults", name)
		}
		if min(m.Input, *m.CachedInput, *m.CacheWrite, m.Output) < 0 {
			return fmt.Errorf("model %.128q has a negative price", name)
		}
	}
	return nil
}

// key returns the key without the trailing newline that secret files often have.
func (r Route) key() string { return strings.TrimSpace(string(r.Key)) }
