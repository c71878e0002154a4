// Package llm lets sandboxes call models without a key. The gateway of an environment makes the calls and keeps a
// journal of them. This package gives the gateway the environment's routes with their keys, which the gateway has in
// memory only, and the limit of their cost. It also records the journal in the ledger. The credentials of other hosts
// take the same path to the gateway.
//
//	before a sandbox is used ──> Prepare ─┐
//	an environment changes ─────> Serve ──┼─> the gateway's routes, keys, budget and credentials
//	ticker ─────────────────────> Collect ┘
//	                                 └─────> llm_calls, llm_days, llm_months
//	an environment is removed ──> Drain ─────┘
//
// The transaction that records lines of a journal also stores the position in it, so each call counts once. The
// gateway keeps the unrecorded lines.
package llm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/modelcalls"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sealedsecrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/parallel"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits of a Collect.
const (
	// askTimeout limits the work with one gateway.
	askTimeout = 20 * time.Second
	// recordTimeout is the part of askTimeout for the journal.
	recordTimeout = 15 * time.Second
	// askers limits the gateways that are asked at the same time.
	askers = 8
)

// Budgets returns the budgets of environments.
type Budgets interface {
	// BudgetUse returns the use of an environment's budget this month, nil without a budget.
	BudgetUse(tx *ledger.Tx, env *ledger.Environment) (*sandbox.BudgetUse, error)
}

// Keys decrypts the keys of routes and the credentials of hosts.
type Keys interface {
	// Credentials returns the values by the name of the secret.
	Credentials(env *ledger.Environment, sealed []sealedsecrets.Secret) (map[string]sandbox.Secret, error)
}

// Observer receives recorded calls, for metrics. Its methods are safe for concurrent use and do not block.
type Observer interface {
	// LLMCallEnded reports that the end of a call was recorded.
	LLMCallEnded(call sandbox.LLMCall)
}

// Config configures a Service. All fields except Observer are required.
type Config struct {
	Store    *ledger.Store
	Keys     Keys
	Budgets  Budgets
	Observer Observer // nil: none
	Log      *slog.Logger
}

// Service is safe for concurrent use by any number of processes on one ledger.
type Service struct{ c Config }

var _ lifecycle.Preparer = (*Service)(nil)

// New returns a Service.
func New(c Config) *Service { return &Service{c} }

// Prepare implements lifecycle.Preparer. It gives the gateway its routes and credentials before the sandbox is used.
func (s *Service) Prepare(_ *ledger.Tx, row *ledger.Sandbox, _ lifecycle.Beginning) (lifecycle.Fill, error) {
	if len(row.LLM)+len(row.Egress.Credentials) == 0 || row.Pooled() {
		return nil, nil
	}
	return func(ctx context.Context, t *lifecycle.Step) (lifecycle.Settle, error) {
		bounded, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		return nil, s.Serve(bounded, t.On, t.Row.EnvironmentID, t.Row.Instance)
	}, nil
}

// broker are the abilities of a backend's gateways that this package needs.
type broker interface {
	driver.LLMBroker
	driver.CredentialBroker
}

// brokerOf returns the broker of a backend. Errors: Internal if it has none, which validation rules out.
func brokerOf(x driver.Executor, environmentID string) (broker, error) {
	if b, ok := x.(*lifecycle.Backend); ok {
		x = b.Executor
	}
	b, ok := x.(broker)
	if !ok {
		return nil, sandbox.Errorf(sandbox.Internal, "environment %s: backend %s has no gateways that add credentials",
			environmentID, x.Backend())
	}
	return b, nil
}

func (s *Service) ref(environmentID, instance string) driver.EnvironmentRef {
	return driver.EnvironmentRef{LedgerID: s.c.Store.ID(), EnvironmentID: environmentID, Instance: instance}
}

// Serve gives the gateway of an environment its routes and credentials. It removes those that the environment no longer
// has.
func (s *Service) Serve(ctx context.Context, x driver.Executor, environmentID, instance string) error {
	to, err := brokerOf(x, environmentID)
	if err != nil {
		return err
	}
	return s.serve(ctx, to, environmentID, instance)
}

func (s *Service) serve(ctx context.Context, to broker, environmentID, instance string) error {
	settings, credentials, err := s.settings(ctx, environmentID)
	if err == nil {
		err = to.ServeLLM(ctx, s.ref(environmentID, instance), settings)
	}
	if err == nil {
		err = to.ServeCredentials(ctx, s.ref(environmentID, instance), credentials)
	}
	return err
}

// settings reads the settings for the gateway of an environment.
func (s *Service) settings(ctx context.Context,
	environmentID string) (out driver.LLMSettings, hosts map[string]driver.Credential, err error) {
	var (
		env    *ledger.Environment
		sealed []sealedsecrets.Secret
	)
	err = s.c.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		if env, err = tx.KnownEnvironment(environmentID); err != nil {
			return err
		}
		if sealed, err = sealedsecrets.In(tx).Of(environmentID); err != nil {
			return err
		}
		out, err = s.spending(tx, env)
		return err
	})
	if err != nil {
		return out, nil, err
	}
	out.Account, out.Routes = env.Owner, make(map[string]driver.LLMKeyedRoute, len(env.Spec.LLM))
	if env.Status != sandbox.EnvironmentOpen && env.Status != sandbox.EnvironmentClosed {
		return out, nil, nil // its sandboxes are being removed
	}
	keys, err := s.c.Keys.Credentials(env, sealed)
	if err != nil {
		return out, nil, err
	}
	key := func(of, secret string) (sandbox.Secret, error) {
		value, ok := keys[secret]
		if !ok {
			return "", sandbox.Errorf(sandbox.Internal, "environment %s: %s: secret %s has no value: set it again",
				environmentID, of, secret)
		}
		return value, nil
	}
	for name, route := range env.Spec.LLM {
		value, err := key("LLM route "+name, route.Credential)
		if err != nil {
			return out, nil, err
		}
		out.Routes[name] = driver.LLMKeyedRoute{LLMRoute: route, Key: value}
	}
	rules := env.Spec.EgressRules()
	hosts = make(map[string]driver.Credential, len(rules.Credentials))
	for host, c := range rules.Credentials {
		value, err := key("the credential of "+host, c.Secret)
		if err != nil {
			return out, nil, err
		}
		hosts[host] = driver.Credential{Header: c.WithDefaults().Header, Value: c.Value(value)}
	}
	return out, hosts, nil
}

// spending returns the cost of the month's calls, and its limit. The budget includes the reservations of running calls.
// The gateway counts these too, so spending adds them back.
func (s *Service) spending(tx *ledger.Tx, env *ledger.Environment) (driver.LLMSettings, error) {
	month := tx.Now.Time().Format("2006-01")
	out := driver.LLMSettings{Month: month, Recorded: make(map[string]driver.LLMRecorded)}
	sums, err := modelcalls.In(tx).Months(env.ID, month)
	if err != nil {
		return out, err
	}
	var spent sandbox.NanoUSD
	for _, m := range sums {
		out.Recorded[m.Route] = driver.LLMRecorded{Cost: m.Cost, Calls: m.Calls, Tokens: m.Tokens}
		spent += m.Cost
	}
	use, err := s.c.Budgets.BudgetUse(tx, env)
	if err != nil || use == nil {
		return out, err
	}
	running, err := modelcalls.In(tx).Reserved(env.ID)
	most := spent + running + use.Left()
	out.Cap = &most
	return out, err
}

// Collect records the journals of an instance's gateways, and gives each gateway its routes and its current limit. A
// gateway that does not answer does not delay the others. It returns the errors of all gateways.
func (s *Service) Collect(ctx context.Context, x driver.Executor, instance string) error {
	var envs []ledger.Environment
	err := s.c.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		envs, err = modelcalls.In(tx).Brokered(instance)
		return err
	})
	if err != nil {
		return err
	}
	return parallel.Each(askers, envs, func(env *ledger.Environment) error {
		bounded, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if err := s.collect(bounded, x, env); err != nil && ctx.Err() == nil {
			return fmt.Errorf("LLM calls of environment %s: %w", env.ID, err)
		}
		return nil
	})
}

func (s *Service) collect(ctx context.Context, x driver.Executor, env *ledger.Environment) error {
	from, err := brokerOf(x, env.ID)
	if err != nil {
		return err
	}
	if env.Unmade() {
		return nil
	}
	recording, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	err = s.record(recording, from, env.ID, env.Instance)
	if err == nil || recording.Err() != nil { // a journal that is too long for once must not delay the limit
		err = errors.Join(err, s.serve(ctx, from, env.ID, env.Instance))
	}
	if !env.Spec.HasCredentials() && sandbox.CodeOf(err) == sandbox.NotFound {
		return nil // it no longer has credentials or a gateway
	}
	return err
}

// Drain records the rest of an environment's journal. Then the ledger has each call of removed sandboxes, and its end.
// An environment without a gateway has nothing left.
func (s *Service) Drain(ctx context.Context, x driver.Executor, environmentID, instance string) error {
	var brokered bool
	err := s.c.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		brokered, err = modelcalls.In(tx).IsBrokered(instance, environmentID)
		return err
	})
	if err != nil || !brokered {
		return err
	}
	from, err := brokerOf(x, environmentID)
	if err == nil {
		err = s.record(ctx, from, environmentID, instance)
	}
	if err != nil && sandbox.CodeOf(err) != sandbox.NotFound {
		return fmt.Errorf("the LLM calls that are not recorded yet: %w", err)
	}
	abandoned, err := s.abandoned(ctx, environmentID)
	if err == nil {
		err = s.settleAbandoned(ctx, environmentID, abandoned)
	}
	return err
}

// Calls returns the latest calls. Errors: Invalid.
func (s *Service) Calls(ctx context.Context, q sandbox.LLMCallQuery) (calls []sandbox.LLMCall, err error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	q.Limit = cmp.Or(q.Limit, sandbox.DefaultLLMCalls)
	err = s.c.Store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := modelcalls.In(tx).List(q)
		calls = make([]sandbox.LLMCall, len(rows))
		for i := range rows {
			calls[i] = rows[i].Domain()
		}
		return err
	})
	return calls, err
}
