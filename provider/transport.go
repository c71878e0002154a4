package provider

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
)

// transport configures how to reach a reconciler. Its zero value uses the machine's defaults.
type transport struct {
	tls   *tls.Config
	proxy *url.URL
}

// unknown reports whether the whole reconciler may be unknown (spread.Config).
func (r reconcilerModel) unknown() bool {
	return r.URL.IsUnknown() && r.Token.IsUnknown() && r.AllowHTTP.IsUnknown() && r.CAFile.IsUnknown() &&
		r.CertFile.IsUnknown() && r.KeyFile.IsUnknown() && r.ProxyURL.IsUnknown()
}

// transportUnknown names the attributes whose values are unknown.
func (r reconcilerModel) transportUnknown() []string {
	return slices.Concat(unknown("reconciler.ca_file", r.CAFile),
		unknown("reconciler.client_certificate_file", r.CertFile), unknown("reconciler.client_key_file", r.KeyFile),
		unknown("reconciler.proxy_url", r.ProxyURL))
}

// withoutPassword returns a URL without its password. A text that is not a URL may have one anywhere before its last @.
func withoutPassword(text string, u *url.URL) string {
	i := strings.LastIndexByte(text, '@')
	switch {
	case u != nil && u.User != nil:
		return u.Redacted()
	case i >= 0:
		return "xxxxx" + text[i:]
	default:
		return text
	}
}

// transport reads the files that the block names.
func (r reconcilerModel) transport() (transport, diag.Diagnostics) {
	var t transport
	var diags diag.Diagnostics
	unusable := func(attribute, summary, format string, args ...any) {
		diags.AddAttributeError(path.Root("reconciler").AtName(attribute), summary, fmt.Sprintf(format, args...))
	}
	if file := r.CAFile.ValueString(); file != "" {
		pem, err := os.ReadFile(file)
		roots := x509.NewCertPool()
		switch {
		case err != nil:
			unusable("ca_file", "Unreadable Certificate Authority", "Reading ca_file: %s.", err)
		case !roots.AppendCertsFromPEM(pem):
			unusable("ca_file", "Unreadable Certificate Authority", "The file %s has no certificate in PEM form.", file)
		}
		t.tls = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	if file := r.CertFile.ValueString(); file != "" {
		pair, err := tls.LoadX509KeyPair(file, r.KeyFile.ValueString())
		if err != nil {
			unusable("client_certificate_file", "Unreadable Client Certificate",
				"Reading client_certificate_file %s and client_key_file %s: %s.", file, r.KeyFile.ValueString(), err)
		}
		if t.tls == nil {
			t.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		t.tls.Certificates = []tls.Certificate{pair}
	}
	if proxy := r.ProxyURL.ValueString(); proxy != "" {
		u, err := url.Parse(proxy)
		if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
			unusable("proxy_url", "Invalid Proxy URL", "The proxy's URL must be like http://proxy.example.com:3128, not %q.",
				withoutPassword(proxy, u))
		}
		t.proxy = u
	}
	return t, diags
}
