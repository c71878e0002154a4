package provider

import (
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func block(url, token types.String) *reconcilerModel {
	return &reconcilerModel{URL: url, Token: token}
}

var (
	remote = env(envReconcilerURL, "https://env.example.com", envReconcilerToken, "env-token")
	text   = types.StringValue
)

func TestWhichServiceIsUsed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		m          model
		getenv     func(string) string
		url, token string // of the reconciler; otherwise
		ledger     string // the end of the ledger's URL
		state      string // the end of the bucket's
	}{
		"nothing": {
			getenv: env(),
			ledger: "terraform-provider-sandbox/ledger.db",
			state:  "terraform-provider-sandbox/state",
		},
		"environment": {getenv: remote, url: "https://env.example.com", token: "env-token"},
		"block": {
			m:      model{Reconciler: block(text("https://a.example.com"), text("t"))},
			getenv: remote,
			url:    "https://a.example.com",
			token:  "t",
		},
		"block without token": {
			m:      model{Reconciler: block(text("https://a.example.com"), types.StringNull())},
			getenv: remote,
			url:    "https://a.example.com",
			token:  "env-token",
		},
		"empty block": {
			m:      model{Reconciler: &reconcilerModel{}},
			getenv: remote,
			url:    "https://env.example.com",
			token:  "env-token",
		},
		"ledger beats the rest": {
			m:      model{Ledger: text("sqlite:///x/a.db")},
			getenv: remote,
			ledger: "sqlite:///x/a.db",
			state:  "file:///x/state",
		},
		"bucket beats the rest": {
			m:      model{StateURL: text("s3://kept?region=r")},
			getenv: remote,
			ledger: "ledger.db",
			state:  "s3://kept?region=r",
		},
		"PostgreSQL, no bucket": {m: model{Ledger: text("postgres://db/x")}, getenv: env(), ledger: "postgres://db/x"},
		"loopback needs no TLS": {
			m:      model{Reconciler: block(text("http://127.0.0.1:8787"), text("t"))},
			getenv: env(),
			url:    "http://127.0.0.1:8787",
			token:  "t",
		},
		"localhost needs no TLS": {
			m:      model{Reconciler: block(text("http://localhost:8787"), text("t"))},
			getenv: env(),
			url:    "http://localhost:8787",
			token:  "t",
		},
		"plain HTTP by permission": {m: model{
			Reconciler: &reconcilerModel{URL: text("http://games:8787"), Token: text("t"), AllowHTTP: types.BoolValue(true)},
		},
			getenv: env(), url: "http://games:8787", token: "t"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, diags := tt.m.resolve(tt.getenv)
			if diags.HasError() {
				t.Fatal(diags)
			}
			if s.reconcilerURL != tt.url || s.token != tt.token ||
				!strings.HasSuffix(s.ledgerURL, tt.ledger) || (s.ledgerURL == "") != (tt.url != "") ||
				!strings.HasSuffix(s.snapshotURL, tt.state) || (s.snapshotURL == "") != (tt.state == "") {
				t.Errorf("got %+v", s)
			}
		})
	}
}

// A reconciler has an account of its own for environments. The provider's is for images.
func TestTheAccountIsResolvedBesideAReconciler(t *testing.T) {
	t.Parallel()
	const account = "0123456789abcdef0123456789abcdef"
	m := model{
		Reconciler: block(text("https://a.example.com"), text("t")),
		Cloudflare: &cloudflareModel{AccountID: text(account), Token: text("secret")},
	}
	s, diags := m.resolve(env())
	if diags.HasError() || !s.remote || s.cloudflare.AccountID != account || s.cloudflare.Token != "secret" {
		t.Errorf("of both attributes: %+v, %v", s, diags)
	}
	m.Cloudflare.Token = types.StringUnknown()
	if s, diags := m.resolve(env()); diags.HasError() || len(s.serviceUnknown) > 0 {
		t.Errorf("a token that is not known yet: %v, %v", s.serviceUnknown, diags)
	}
	s, diags = model{}.resolve(env(envReconcilerURL, "https://a.example.com", envReconcilerToken, "t",
		"CLOUDFLARE_ACCOUNT_ID", account, "CLOUDFLARE_API_TOKEN", "secret"))
	if diags.HasError() || !s.remote || s.cloudflare.AccountID != account {
		t.Errorf("of the environment: %+v, %v", s, diags)
	}
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		m      model
		getenv func(string) string
		says   string
	}{
		"both": {model{Ledger: text("sqlite:///a.db"), Reconciler: block(text("https://a"), text("t"))}, env(),
			"Remove one of them"},
		"bucket, reconciler": {model{StateURL: text("file:///a"), Reconciler: block(text("https://a"), text("t"))}, env(),
			"Remove one of them"},
		"both, parts unknown": {model{Ledger: text("sqlite:///a.db"), Reconciler: block(types.StringUnknown(), text("t"))},
			env(), "Remove one of them"},
		"no URL": {model{Reconciler: &reconcilerModel{}}, env(), envReconcilerURL + " is not set"},
		"no token": {model{Reconciler: block(text("https://a"), types.StringNull())}, env(),
			"set " + envReconcilerToken},
		"token over HTTP": {model{Reconciler: block(text("http://games:8787"), text("t"))}, env(), "allow_http = true"},
		"environment, HTTP": {model{}, env(envReconcilerURL, "http://games:8787", envReconcilerToken, "t"),
			"allow_http = true"},
		"environment, no URL":  {model{}, env(envReconcilerURL, "games", envReconcilerToken, "t"), "must be like https://"},
		"a pool of no range":   {model{Docker: &dockerModel{NetworkPool: text("10.0.0.1")}}, env(), "an IPv4 range"},
		"a pool too large":     {model{Docker: &dockerModel{NetworkPool: text("10.0.0.0/8")}}, env(), "of /12 to /28"},
		"a ledger of no form":  {model{Ledger: text("ledger.db")}, env(), "write it as sqlite:///absolute/path/ledger.db"},
		"a ledger of a host":   {model{Ledger: text("sqlite://a/b.db")}, env(), "without host and query"},
		"a bucket of no form":  {model{StateURL: text("foo")}, env(), `the URL "foo" must begin with file:// or s3://`},
		"an engine of no form": {model{Docker: &dockerModel{Host: text("nope")}}, env(), "write it as unix:///"},
		"an engine elsewhere":  {model{Docker: &dockerModel{Host: text("htp://a")}}, env(), "write it as unix:///"},
		"an account without a token, reconciler": {model{Reconciler: block(text("https://a"), text("t")),
			Cloudflare: &cloudflareModel{AccountID: text("0123456789abcdef0123456789abcdef")}}, env(),
			"CLOUDFLARE_API_TOKEN is not set"},
		"an account of no form": {model{Cloudflare: &cloudflareModel{AccountID: text("games")}}, env(),
			`cloudflare.account_id must be 32 hexadecimal digits, as the dashboard shows them, not "games"`},
		"an API of no form": {model{Cloudflare: &cloudflareModel{BaseURL: text("api.example.com")}}, env(),
			`cloudflare.api_base_url must be an https or http URL, not "api.example.com"`},
		"other scheme": {model{Reconciler: block(text("ftp://games"), text("t"))}, env(), "must be like https://"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, diags := tt.m.resolve(tt.getenv)
			if !diags.HasError() || !strings.Contains(diags[0].Detail(), tt.says) {
				t.Errorf("got %v, want an error that says %q", diags, tt.says)
			}
		})
	}
}

// A user who sets only a token probably wants a reconciler. A user who sets the ledger wants the ledger.
func TestATokenWithoutAURLIsAWarning(t *testing.T) {
	t.Parallel()
	token := env(envReconcilerToken, "t")
	for name, tt := range map[string]struct {
		m      model
		getenv func(string) string
		warns  int
	}{
		"token":          {model{}, token, 1},
		"token, ledger":  {model{Ledger: text("sqlite:///x/a.db")}, token, 0},
		"token and URL":  {model{}, remote, 0},
		"neither":        {model{}, env(), 0},
		"token, in HCL":  {model{Reconciler: block(text("https://a"), types.StringNull())}, token, 0},
		"token, unknown": {model{Reconciler: block(types.StringUnknown(), types.StringNull())}, token, 0},
	} {
		_, diags := tt.m.resolve(tt.getenv)
		if diags.HasError() || len(diags) != tt.warns {
			t.Errorf("%s: %v", name, diags)
		}
		if tt.warns == 1 && !strings.Contains(diags[0].Detail(), envReconcilerURL+" is not") {
			t.Errorf("%s: it says %v", name, diags)
		}
	}
}

// Values that are known only after an apply cause no error until something needs them.
func TestUnknownConfiguration(t *testing.T) {
	t.Parallel()
	unknown := types.StringUnknown()
	tests := map[string]struct {
		m                model
		service, engine  string // the attributes that the error names; "" means no error
		withoutPriceBook bool
	}{
		"reconciler": {m: model{Reconciler: block(unknown, unknown)}, service: "reconciler.url, reconciler.token"},
		"ledger":     {m: model{Ledger: unknown}, service: "ledger"},
		"bucket":     {m: model{StateURL: unknown}, service: "state_url"},
		"host":       {m: model{Docker: &dockerModel{Host: unknown}}, service: "docker.host", engine: "docker.host"},
		"ledger, with a reconciler": {m: model{
			Ledger: unknown, StateURL: unknown, Reconciler: block(text("https://a"), text("t")),
		}},
		"whole reconciler": {m: model{
			Ledger: text("sqlite:///a.db"), StateURL: text("file:///a"), Reconciler: &reconcilerModel{URL: unknown, Token: unknown,
				AllowHTTP: types.BoolUnknown(), CAFile: unknown, CertFile: unknown, KeyFile: unknown, ProxyURL: unknown},
		},
			service: "reconciler.url, reconciler.token, reconciler.ca_file, reconciler.client_certificate_file, " +
				"reconciler.client_key_file, reconciler.proxy_url, reconciler.allow_http"},
		"host, with a reconciler": {m: model{
			Reconciler: block(text("https://a"), text("t")),
			Docker:     &dockerModel{Context: unknown},
		},
			engine: "docker.context"},
		"network pool": {m: model{Docker: &dockerModel{NetworkPool: unknown}}, service: "docker.network_pool"},
		"price book":   {m: model{Docker: &dockerModel{PriceBook: unknown}}, withoutPriceBook: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, diags := tt.m.resolve(env())
			if diags.HasError() {
				t.Fatal(diags)
			}
			c := &connection{settings: s}
			if tt.service != "" {
				_, err := c.Service(t.Context())
				names(t, err, tt.service)
			}
			if tt.engine != "" {
				_, err := c.Engine()
				names(t, err, tt.engine)
			}
			books, err := s.priceBooks()
			if err != nil || (books == nil) != tt.withoutPriceBook {
				t.Errorf("price books %v, %v", books, err)
			}
		})
	}
}

func names(t *testing.T, err error, attributes string) {
	t.Helper()
	if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "("+attributes+")") {
		t.Errorf("got %v, want an error that names %s", err, attributes)
	}
}
