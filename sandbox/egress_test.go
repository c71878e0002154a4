package sandbox_test

import (
	"errors"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestEgressNamesEachFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	err := sandbox.Egress{
		Allow: []sandbox.EgressRule{
			{Host: "github.com"},
			{Host: "GitHub.com"},
			{Host: "*.example.com", Ports: []int{443, 0, 443, 70000}},
			{Host: "bücher.example"},
			{Host: "example.com."},
			{Host: "10.0.0.1"}, {Host: "0x7f.1"}, {Host: "[::1]"}, {Host: "::1"},
			{Host: "*"}, {Host: "*.com"}, {Host: "a.*.example.com"}, {Host: "*example.com"}, {Host: "*.*.example.com"},
			{Host: "https://example.com"}, {Host: "example.com:443"}, {Host: ""}, {Host: "a..b"}, {Host: "-a.example"},
			{Host: "a\x00.github.com"}, {Host: strings.Repeat("a", 64) + ".example"},
			{Host: "*.10.0.0.1"},
		},
		PrivateCIDRs: []string{
			"10.1.0.0/16", "10.1.0.1/16", "10.0.0.0/7", "127.0.0.0/8", "169.254.0.0/16", "8.8.8.0/24", "::ffff:10.0.0.0/104",
			"0.0.0.0/0", "fd00::/8", "ten",
		},
	}.Validate()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != sandbox.Invalid {
		t.Fatalf("the error is %v", err)
	}
	wrong := map[string]bool{}
	for _, f := range e.Fields {
		wrong[f.Name] = true
	}
	want := []string{
		"egress.allow[1].host", "egress.allow[2].ports[1]", "egress.allow[2].ports[2]", "egress.allow[2].ports[3]",
	}
	for i := 3; i < 22; i++ {
		want = append(want, "egress.allow["+strconv.Itoa(i)+"].host")
	}
	for _, i := range []string{"1", "2", "3", "4", "5", "6", "7", "9"} {
		want = append(want, "egress.private_cidrs["+i+"]")
	}
	for _, name := range want {
		if !wrong[name] {
			t.Errorf("%s was accepted", name)
		}
		delete(wrong, name)
	}
	for name := range wrong {
		t.Errorf("%s was refused", name)
	}
}

func TestDefaultEgressIsValidAndHasNoPackageRegistry(t *testing.T) {
	t.Parallel()
	e := sandbox.DefaultEgress()
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
	for _, r := range e.Allow {
		for _, registry := range []string{"npm", "pypi", "crates", "golang", "maven", "rubygems"} {
			if strings.Contains(r.Host, registry) {
				t.Errorf("%s is allowed by default", r.Host)
			}
		}
	}
}

func TestHostNamesAreComparedInOneForm(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"github.com": "github.com", "GitHub.COM": "github.com", "github.com.": "github.com",
		"xn--bcher-kva.example": "xn--bcher-kva.example", "model": "model", "_dmarc.example": "_dmarc.example",
		"127.0.0.1.nip.io": "127.0.0.1.nip.io", "0x7f.example": "0x7f.example", "1.2.3.4a": "1.2.3.4a",
	} {
		if got, err := sandbox.CanonicalHost(in); got != want || err != nil {
			t.Errorf("%q became %q, %v; want %q", in, got, err, want)
		}
	}
}

// FuzzCanonicalHost looks for a text that we accept as a name and that another parser reads as an address.
func FuzzCanonicalHost(f *testing.F) {
	for _, seed := range []string{
		"github.com", "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.1.", "0", "0x",
		"::1", "[::1]", "::ffff:10.0.0.1", "fe80::1%eth0", "a\x00b", "a..b", "1.2.3.4.5", "1.0xg", "0B0", "ⅰ.com",
		"１２７.0.0.1", "127。0。0。1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, err := sandbox.CanonicalHost(text)
		if err != nil {
			return
		}
		if again, err := sandbox.CanonicalHost(host); again != host || err != nil {
			t.Errorf("%q became %q, which becomes %q, %v", text, host, again, err)
		}
		if a, err := netip.ParseAddr(host); err == nil {
			t.Errorf("%q is the address %s", text, a)
		}
		if ipv4.MatchString(host) {
			t.Errorf("%q is an address to inet_aton", text)
		}
		for _, r := range host {
			if r >= 0x80 || r <= ' ' || strings.ContainsRune("/:@[]%*?#\\", r) {
				t.Errorf("%q has %q in it", host, r)
			}
		}
	})
}

// ipv4 is the grammar of inet_aton, which many parsers follow: up to four numbers, each decimal,
// octal or hexadecimal.
var ipv4 = regexp.MustCompile(`^(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}$`)

// TestWhatInterceptionCannotGiveIsRefusedOnCloudflare: the field names the rule that requests it.
func TestWhatInterceptionCannotGiveIsRefusedOnCloudflare(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		egress *sandbox.Egress
		field  string
	}{
		"the default": {nil, ""},
		"nothing":     {&sandbox.Egress{Allow: []sandbox.EgressRule{}}, ""},
		"the usual ports": {
			&sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "a.test", Ports: []int{443, 80}}, {Host: "*.b.test"}}}, "",
		},
		"another port": {&sandbox.Egress{
			Allow: []sandbox.EgressRule{{Host: "a.test"}, {Host: "b.test", Ports: []int{443, 5432}}},
		}, "egress.allow[1].ports[1]"},
		"a private range": {
			&sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "a.test"}}, PrivateCIDRs: []string{"10.0.0.0/8"}},
			"egress.private_cidrs",
		},
	} {
		for _, backend := range []sandbox.Backend{sandbox.Docker, sandbox.Cloudflare} {
			spec := sandbox.EnvironmentSpec{
				Backend: backend,
				Image:   "player",
				Network: sandbox.NetworkRestricted,
				Egress:  row.egress,
			}.WithDefaults()
			field := ""
			if all := spec.Unsupported(); len(all) > 0 {
				field = all[0].Name
			}
			want := row.field
			if backend == sandbox.Docker {
				want = ""
			}
			if field != want {
				t.Errorf("%s on %s: the field %q is refused, want %q", name, backend, field, want)
			}
			if err := spec.Validate(); (err == nil) != (want == "") {
				t.Errorf("%s on %s: %v", name, backend, err)
			}
		}
	}
}

func TestACredentialIsWrittenByItsScheme(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		c             sandbox.EgressCredential
		header, value string
	}{
		{sandbox.EgressCredential{}, "Authorization", "Bearer key"},
		{sandbox.EgressCredential{Header: "Private-Token"}, "Private-Token", "key"},
		{sandbox.EgressCredential{Header: "X-Auth", Scheme: sandbox.CredentialBearer}, "X-Auth", "Bearer key"},
		{sandbox.EgressCredential{Scheme: sandbox.CredentialRaw}, "Authorization", "key"},
		{sandbox.EgressCredential{Scheme: sandbox.CredentialBasic, Username: "ann"}, "Authorization", "Basic YW5uOmtleQ=="},
	} {
		if got := string(row.c.Value(" key\n")); got != row.value || row.c.WithDefaults().Header != row.header {
			t.Errorf("%+v is %s: %s", row.c, row.c.WithDefaults().Header, got)
		}
	}
}

func TestCredentialsAreForAllowedHosts(t *testing.T) {
	t.Parallel()
	const cert = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
	ok := sandbox.EgressCredential{Secret: "one"}
	for name, row := range map[string]struct {
		credentials map[string]sandbox.EgressCredential
		authorities string
		want        string // the wrong field, "" for none
	}{
		"an allowed host":     {map[string]sandbox.EgressCredential{"good.test": ok}, cert, ""},
		"below a domain":      {map[string]sandbox.EgressCredential{"a.wild.test": ok}, "", ""},
		"the domain itself":   {map[string]sandbox.EgressCredential{"wild.test": ok}, "", `egress.credentials["wild.test"]`},
		"another host":        {map[string]sandbox.EgressCredential{"evil.test": ok}, "", `egress.credentials["evil.test"]`},
		"plain HTTP only":     {map[string]sandbox.EgressCredential{"plain.test": ok}, "", `egress.credentials["plain.test"]`},
		"another spelling":    {map[string]sandbox.EgressCredential{"Good.test": ok}, "", `egress.credentials["Good.test"]`},
		"an address":          {map[string]sandbox.EgressCredential{"10.0.0.1": ok}, "", `egress.credentials["10.0.0.1"]`},
		"authorities of none": {nil, cert, "egress.authorities"},
		"a private key": {map[string]sandbox.EgressCredential{"good.test": ok},
			"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n", "egress.authorities"},
		"a header of the connection": {map[string]sandbox.EgressCredential{"good.test": {Secret: "one", Header: "transfer-encoding"}},
			"", `egress.credentials["good.test"].header`},
		"no header": {map[string]sandbox.EgressCredential{"good.test": {Secret: "one", Header: "a b"}}, "",
			`egress.credentials["good.test"].header`},
		"another scheme": {map[string]sandbox.EgressCredential{"good.test": {Secret: "one", Scheme: "digest"}}, "",
			`egress.credentials["good.test"].scheme`},
		"basic without a user": {map[string]sandbox.EgressCredential{"good.test": {Secret: "one", Scheme: "basic"}}, "",
			`egress.credentials["good.test"].username`},
	} {
		err := sandbox.Egress{
			Allow:       []sandbox.EgressRule{{Host: "good.test"}, {Host: "*.wild.test"}, {Host: "plain.test", Ports: []int{80}}},
			Credentials: row.credentials, Authorities: row.authorities,
		}.Validate()
		var got string
		if e, is := err.(*sandbox.Error); is && len(e.Fields) == 1 { //nolint:errorlint // of Validate itself
			got = e.Fields[0].Name
		}
		if got != row.want || (err == nil) != (row.want == "") {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}
