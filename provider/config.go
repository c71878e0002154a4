package provider

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/networks"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Environment variables that provide defaults for the configuration.
const (
	envReconcilerURL   = "SANDBOX_RECONCILER_URL"
	envReconcilerToken = "SANDBOX_RECONCILER_TOKEN" //nolint:gosec // the name of a variable
)

func reconcilerPath(attribute string) path.Expression {
	return path.MatchRoot("reconciler").AtName(attribute)
}

func contextPath() path.Expression { return path.MatchRoot("docker").AtName("context") }

// settings are the configuration, completed with defaults and environment variables.
type settings struct {
	// remote is set if a reconciler runs the service. Otherwise this process does, and reconcilerURL is empty.
	remote                    bool
	reconcilerURL, token      string
	transport                 transport
	ledgerURL, snapshotURL    string
	dockerHost, dockerContext string
	networkPool               netip.Prefix // zero means the executor's default
	priceBook                 string
	cloudflare                deploy.Config // zero without an account
	// A plan may come before the provider's values are known. These fields hold the names of the unknown attributes of
	// the service, the engine and networks, and whether the price book is unknown.
	serviceUnknown, engineUnknown, poolUnknown []string
	priceBookUnknown                           bool
}

// check finds problems that do not depend on the environment variables. An unknown value may become null.
func (m model) check() diag.Diagnostics {
	diags := m.checkAddresses()
	if m.Reconciler == nil || m.Reconciler.unknown() {
		return diags
	}
	if !m.Ledger.IsNull() && !m.Ledger.IsUnknown() {
		diags.AddAttributeError(path.Root("ledger"), "Reconciler And Ledger Conflict",
			"The provider has both a reconciler and a ledger. Remove one of them: a reconciler has its own ledger, and "+
				"without one the provider keeps it.")
	}
	if !m.StateURL.IsNull() && !m.StateURL.IsUnknown() {
		diags.AddAttributeError(path.Root("state_url"), "Reconciler And State URL Conflict",
			"The provider has both a reconciler and a state_url. Remove one of them: the reconciler has the flag "+
				"--state-url.")
	}
	if r := m.Reconciler; !r.URL.IsNull() && !r.URL.IsUnknown() && !r.AllowHTTP.IsUnknown() {
		diags.Append(checkURL(r.URL.ValueString(), r.AllowHTTP.ValueBool())...)
	}
	return diags
}

// checkAddresses finds malformed addresses of the ledger, the bucket, the engine and the account.
func (m model) checkAddresses() (diags diag.Diagnostics) {
	if !m.Ledger.IsNull() && !m.Ledger.IsUnknown() {
		if err := location.Check(m.Ledger.ValueString()); err != nil {
			diags.AddAttributeError(path.Root("ledger"), "Invalid Ledger URL", err.Error()+".")
		}
	}
	if !m.StateURL.IsNull() && !m.StateURL.IsUnknown() {
		if err := snapshotstore.Check(m.StateURL.ValueString()); err != nil {
			diags.AddAttributeError(path.Root("state_url"), "Invalid State URL", fmt.Sprintf("state_url: %s.", err))
		}
	}
	if d := m.Docker; d != nil && !d.Host.IsNull() && !d.Host.IsUnknown() {
		if err := docker.CheckHost(d.Host.ValueString()); err != nil {
			diags.AddAttributeError(path.Root("docker").AtName("host"), "Invalid Docker Host", err.Error()+".")
		}
	}
	return append(diags, m.checkCloudflare()...)
}

// checkCloudflare finds a malformed account id or API address.
func (m model) checkCloudflare() (diags diag.Diagnostics) {
	if m.Cloudflare == nil {
		return nil
	}
	check := func(attribute string, v types.String, problem func(string) string) {
		if v.ValueString() == "" { // also null or unknown; the schema refuses ""
			return
		}
		if problem := problem(v.ValueString()); problem != "" {
			diags.AddAttributeError(path.Root("cloudflare").AtName(attribute), "Invalid Cloudflare Account",
				fmt.Sprintf("cloudflare.%s %s, not %q.", attribute, problem, v.ValueString()))
		}
	}
	check("account_id", m.Cloudflare.AccountID, deploy.AccountIDProblem)
	check("api_base_url", m.Cloudflare.BaseURL, deploy.BaseURLProblem)
	return diags
}

// checkURL refuses an invalid URL, and one that would send the token in clear text.
func checkURL(raw string, allowHTTP bool) diag.Diagnostics {
	at := path.Root("reconciler").AtName("url")
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return diag.Diagnostics{diag.NewAttributeErrorDiagnostic(at, "Invalid Reconciler URL",
			fmt.Sprintf("The reconciler's URL must be like https://reconciler.example.com, not %q.", raw))}
	case u.Scheme == "http" && !allowHTTP && !loopback(u.Hostname()):
		return diag.Diagnostics{diag.NewAttributeErrorDiagnostic(at, "Token Over Plain HTTP",
			fmt.Sprintf("The reconciler's URL %s is not encrypted: anyone on the network path can read the token. Use "+
				"https://, or set reconciler.allow_http = true if that network is trusted.", raw))}
	default:
		return nil
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// resolve fills in defaults and environment variables. The configuration overrides the environment: a configured ledger
// or bucket is used even if SANDBOX_RECONCILER_URL is set.
func (m model) resolve(getenv func(string) string) (settings, diag.Diagnostics) {
	diags := m.check()
	if diags.HasError() {
		return settings{}, diags
	}
	var s settings
	diags.Append(m.resolveDocker(&s)...)
	if diags.HasError() {
		return s, diags
	}
	embedded := !m.Ledger.IsNull() || !m.StateURL.IsNull()
	if m.Reconciler != nil || (!embedded && getenv(envReconcilerURL) != "") {
		diags.Append(m.resolveReconciler(&s, getenv)...)
		_, more := m.resolveCloudflare(&s, getenv) // images may be pushed to its registry
		diags.Append(more...)
		return s, diags
	}
	if !embedded && getenv(envReconcilerToken) != "" && getenv(envReconcilerURL) == "" {
		diags.AddWarning("Reconciler Token Without A URL", fmt.Sprintf("%s is set and %s is not, so the provider uses no "+
			"reconciler, but the ledger on this machine. Set %s, or reconciler.url of the provider. If the ledger is meant, "+
			"unset %s, or set ledger of the provider.", envReconcilerToken, envReconcilerURL, envReconcilerURL,
			envReconcilerToken))
	}
	accountUnknown, more := m.resolveCloudflare(&s, getenv)
	diags.Append(more...)
	s.serviceUnknown = slices.Concat(accountUnknown, unknown("ledger", m.Ledger), unknown("state_url", m.StateURL),
		s.engineUnknown, s.poolUnknown)
	s.ledgerURL = m.Ledger.ValueString()
	if m.Ledger.IsNull() {
		var err error
		if s.ledgerURL, err = location.Default(); err != nil {
			diags.AddError("No Place For The Ledger", fmt.Sprintf("%s. Set the provider's ledger attribute.", err))
		}
	}
	s.snapshotURL = cmp.Or(m.StateURL.ValueString(), location.SnapshotURL(s.ledgerURL))
	return s, diags
}

func (m model) resolveDocker(s *settings) diag.Diagnostics {
	if m.Docker == nil {
		return nil
	}
	s.dockerHost, s.dockerContext = m.Docker.Host.ValueString(), m.Docker.Context.ValueString()
	s.engineUnknown = append(unknown("docker.host", m.Docker.Host), unknown("docker.context", m.Docker.Context)...)
	s.priceBook, s.priceBookUnknown = m.Docker.PriceBook.ValueString(), m.Docker.PriceBook.IsUnknown()
	s.poolUnknown = unknown("docker.network_pool", m.Docker.NetworkPool)
	if m.Docker.NetworkPool.IsNull() || m.Docker.NetworkPool.IsUnknown() {
		return nil
	}
	var err error
	if s.networkPool, err = networks.ParsePool(m.Docker.NetworkPool.ValueString()); err != nil {
		return diag.Diagnostics{diag.NewAttributeErrorDiagnostic(path.Root("docker").AtName("network_pool"),
			"Invalid Network Pool", err.Error()+".")}
	}
	return nil
}

// resolveCloudflare finds the account, and returns what of it is still unknown. If only the environment sets a token or
// an account id, without the other, it ignores it: it belongs to another program.
func (m model) resolveCloudflare(s *settings, getenv func(string) string) (unknowns []string, diags diag.Diagnostics) {
	var c cloudflareModel
	if m.Cloudflare != nil {
		c = *m.Cloudflare
	}
	unknowns = slices.Concat(
		unknown("cloudflare.account_id", c.AccountID), unknown("cloudflare.api_token", c.Token),
		unknown("cloudflare.api_base_url", c.BaseURL), unknown("cloudflare.scheduling_policy", c.Policy),
		unknown("cloudflare.max_instances", c.MaxInstances))
	s.cloudflare = deploy.Config{
		AccountID: c.AccountID.ValueString(), Token: sandbox.Secret(c.Token.ValueString()), BaseURL: c.BaseURL.ValueString(),
		SchedulingPolicy: cloudflare.SchedulingPolicy(c.Policy.ValueString()), MaxInstances: int(c.MaxInstances.ValueInt64()),
	}
	s.cloudflare.FillIn(getenv)
	missing := func(attribute, variable string) {
		diags.AddAttributeError(path.Root("cloudflare").AtName(attribute), "Incomplete Cloudflare Account",
			fmt.Sprintf("The provider's cloudflare has no %s, and %s is not set. Set one of them.", attribute, variable))
	}
	switch {
	case len(unknowns) > 0:
	case m.Cloudflare == nil && (s.cloudflare.AccountID == "" || s.cloudflare.Token == ""):
		s.cloudflare = deploy.Config{}
	case s.cloudflare.AccountID == "":
		missing("account_id", deploy.EnvAccount)
	case s.cloudflare.Token == "":
		missing("api_token", deploy.EnvToken)
	}
	return unknowns, diags
}

func (m model) resolveReconciler(s *settings, getenv func(string) string) diag.Diagnostics {
	s.remote = true
	var r reconcilerModel
	if m.Reconciler != nil {
		r = *m.Reconciler
	}
	s.serviceUnknown = append(unknown("reconciler.url", r.URL), unknown("reconciler.token", r.Token)...)
	s.serviceUnknown = append(s.serviceUnknown, r.transportUnknown()...)
	if r.AllowHTTP.IsUnknown() {
		s.serviceUnknown = append(s.serviceUnknown, "reconciler.allow_http")
	}
	s.reconcilerURL, s.token = r.URL.ValueString(), r.Token.ValueString()
	if r.URL.IsNull() {
		s.reconcilerURL = getenv(envReconcilerURL)
	}
	if r.Token.IsNull() {
		s.token = getenv(envReconcilerToken)
	}
	if len(s.serviceUnknown) > 0 {
		return nil
	}
	var diags diag.Diagnostics
	if s.reconcilerURL == "" {
		diags.AddAttributeError(path.Root("reconciler").AtName("url"), "No Reconciler URL",
			"The provider's reconciler has no url, and "+envReconcilerURL+" is not set.")
		return diags
	}
	if s.token == "" {
		diags.AddAttributeError(path.Root("reconciler").AtName("token"), "No Reconciler Token",
			fmt.Sprintf("Reconciler %s needs a token: set %s, or reconciler.token of the provider.",
				s.reconcilerURL, envReconcilerToken))
	}
	diags.Append(checkURL(s.reconcilerURL, r.AllowHTTP.ValueBool())...)
	var unusable diag.Diagnostics
	s.transport, unusable = r.transport()
	diags.Append(unusable...)
	return diags
}

// unknown returns the attribute's name if its value is unknown.
func unknown(name string, v attr.Value) []string {
	if v.IsUnknown() {
		return []string{name}
	}
	return nil
}

// known refuses to connect while values are unknown.
func known(what string, unknown []string) error {
	if len(unknown) == 0 {
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, "the provider's configuration of %s depends on values that are unknown "+
		"before the apply (%s). Apply their sources first, with -target, or set them by variables",
		what, strings.Join(unknown, ", "))
}

// priceBooks returns the price books for estimates, or nil while they are unknown.
func (s settings) priceBooks() (map[sandbox.Backend]sandbox.PriceBook, error) {
	if s.priceBookUnknown {
		return nil, nil
	}
	book := pricing.Free()
	if s.priceBook != "" {
		var err error
		if book, err = pricing.Load(s.priceBook); err != nil {
			return nil, err
		}
	}
	return map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: book, sandbox.Cloudflare: pricing.Cloudflare()}, nil
}
