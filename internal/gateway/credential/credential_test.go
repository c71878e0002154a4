package credential_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
)

func open(t *testing.T, dir string) *credential.Broker {
	t.Helper()
	b, err := credential.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTheAuthorityOutlivesTheGateway, because sandboxes trust it by files that they already have.
func TestTheAuthorityOutlivesTheGateway(t *testing.T) {
	dir, published := filepath.Join(t.TempDir(), "authority"), t.TempDir()
	if err := open(t, dir).Publish(published); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir)
	if err := again.Publish(published); err != nil { // a second time into the same directory
		t.Fatal(err)
	}
	leaf, err := again.Leaf("github.com")
	if err != nil {
		t.Fatal(err)
	}
	for file, least := range map[string]int{credential.CertificateFile: 1, credential.BundleFile: 100} {
		text, err := os.ReadFile(filepath.Join(published, file))
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(text)
		if n := strings.Count(string(text), "BEGIN CERTIFICATE"); n < least {
			t.Errorf("%s has %d certificates", file, n)
		}
		if _, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: "github.com", Roots: roots}); err != nil {
			t.Errorf("by %s: %v", file, err)
		}
		if _, err := leaf.Leaf.Verify(x509.VerifyOptions{DNSName: "gitlab.com", Roots: roots}); err == nil {
			t.Errorf("by %s the certificate is another host's too", file)
		}
		if info, err := os.Stat(filepath.Join(published, file)); err != nil || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	for _, private := range []string{dir, filepath.Join(dir, "authority.key")} {
		if info, err := os.Stat(private); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("others may read %s: %v, %v", private, info, err)
		}
	}
	if entries, err := os.ReadDir(published); err != nil || len(entries) != 2 {
		t.Errorf("a sandbox sees %v, %v", entries, err)
	}
}

func TestAnAuthorityThatCannotBeReadIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Publish(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, credential.CertificateFile), []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := credential.Open(dir); err == nil {
		t.Error("it was opened")
	}
}

func TestErrorsOfCredentialsDoNotShowThem(t *testing.T) {
	const value = "hunter2"
	b := open(t, t.TempDir())
	for name, c := range map[string]map[string]credential.Credential{
		"host":   {"GitHub.com": {Header: "Authorization", Value: value}},
		"header": {"github.com": {Header: "Author ization", Value: value}},
		"value":  {"github.com": {Header: "Authorization", Value: value + "\r\nHost: evil.example"}},
		"empty":  {"github.com": {Header: "Authorization"}},
	} {
		if err := b.Set(credential.Config{Credentials: c}); err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if hosts := b.Hosts(); len(hosts) > 0 {
		t.Errorf("%q have credentials", hosts)
	}
}
