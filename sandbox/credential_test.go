package sandbox_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

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
		want        string // the field, "" for none
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
