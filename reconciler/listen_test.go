package reconciler_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// served is a reconciler in this process.
type served struct {
	*install
	config  reconciler.Config
	address string
	reloads chan reconciler.Config
}

// serve serves until the test ends.
func (i *install) serve(change func(*reconciler.Config)) *served {
	i.Helper()
	s := &served{install: i, reloads: make(chan reconciler.Config)}
	s.config = reconciler.Config{
		Listen: "127.0.0.1:0", LedgerURL: "sqlite://" + i.dir + "/ledger.db", TokenFile: i.dir + "/tokens", SecretFile: i.dir + "/secrets",
		Version: "test", Logger: slog.New(slog.NewTextHandler(i.Output(), nil)), Reloads: s.reloads,
	}
	change(&s.config)
	ctx, stop := context.WithCancel(i.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- reconciler.Serve(ctx, s.config, func(address string) { ready <- address }) }()
	i.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			i.Error(err)
		}
	})
	select {
	case s.address = <-ready:
	case err := <-done:
		done <- nil
		i.Fatal(err)
	}
	return s
}

// certify writes a certificate for 127.0.0.1 with a serial number, and its key.
func (i *install) certify(serial int64) {
	i.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		i.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		i.Fatal(err)
	}
	i.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	i.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// serial returns the serial number of the certificate that is shown.
func (s *served) serial(most uint16) (int64, error) {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: most}} //nolint:gosec // what is looked at
	conn, err := d.DialContext(s.Context(), "tcp", s.address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil //nolint:forcetypeassert // a tls.Dialer's
}

func TestTLSIsServedWithACertificateThatMayBeReplaced(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	i.certify(1)
	s := i.serve(func(c *reconciler.Config) { c.TLSCert, c.TLSKey = i.dir+"/cert.pem", i.dir+"/key.pem" })
	if _, err := s.serial(tls.VersionTLS11); err == nil {
		t.Error("TLS 1.1 is served")
	}
	if got, err := s.serial(tls.VersionTLS12); err != nil || got != 1 {
		t.Errorf("certificate %d is shown: %v", got, err)
	}
	roots := x509.NewCertPool()
	authority, err := os.ReadFile(i.dir + "/cert.pem")
	if err != nil || !roots.AppendCertsFromPEM(authority) {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Body.Close(); err != nil || a.StatusCode != http.StatusOK || a.ProtoMajor != 2 {
		t.Errorf("%s %s, %v", a.Proto, a.Status, err)
	}
	i.write("key.pem", "half of a pair")
	s.reload()
	if got, err := s.serial(tls.VersionTLS13); err != nil || got != 1 {
		t.Errorf("with half of a new pair, certificate %d is shown: %v", got, err)
	}
	i.certify(2)
	s.reload()
	if got, err := s.serial(tls.VersionTLS13); err != nil || got != 2 {
		t.Errorf("asked to read it again, it shows certificate %d: %v", got, err)
	}
	i.certify(33)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if got, err := s.serial(tls.VersionTLS13); err == nil && got == 33 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the files have changed, and certificate %d is shown: %v", got, err)
		}
	}
}

// reload asks for the settings to be taken over, and returns when that is done: the second time, it is taken
// only after the first was.
func (s *served) reload() {
	s.reloads <- s.config
	s.reloads <- s.config
}

func (s *served) leases(token string) error {
	s.Helper()
	c, err := client.New(client.Config{URL: "http://" + s.address, Token: token, Attempts: 1})
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.ListLeases(s.Context(), sandbox.LeaseFilter{})
	return err
}

func TestCredentialsInFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	old, next := webhook.NewToken(), webhook.NewToken()
	i.write("tokens", "test "+old+"\n")
	s := i.serve(func(*reconciler.Config) {})
	if err := s.leases(old); err != nil {
		t.Fatal(err)
	}
	secret := webhook.NewSecret()
	i.write("secrets", secret+"\n")
	i.write("tokens", "test "+next+"\n")
	s.reload()
	if before, after := s.leases(old), s.leases(next); sandbox.CodeOf(before) != sandbox.Unauthenticated || after != nil {
		t.Errorf("the old token: %v, the new one: %v", before, after)
	}
	key, err := webhook.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{URL: "http://" + s.address, Attempts: 1, Sign: func(h http.Header, id string, body []byte) error {
		return key.Sign(h, id, time.Now(), body)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	finished := sandbox.Condition{Type: "game.finished", Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: "nowhere"}}
	if _, err := c.Deliver(t.Context(), sandbox.Delivery{ID: "m-1", Condition: finished}); err != nil {
		t.Errorf("signed with the new secret: %v", err)
	}
	i.write("tokens", "broken")
	s.reload()
	if err := s.leases(next); err != nil {
		t.Errorf("after a file that cannot be read: %v", err)
	}
}

func TestAUnixSocketIsForItsOwnerAndGroup(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	token := webhook.NewToken()
	i.write("tokens", "test "+token+"\n")
	dir, err := os.MkdirTemp("", "s") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/s"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false) // as of a reconciler that was killed
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	s := i.serve(func(c *reconciler.Config) { c.Listen = "unix://" + dir + "/s" })
	if info, err := os.Stat(dir + "/s"); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
	c, err := client.New(client.Config{URL: s.config.Listen, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.ListLeases(t.Context(), sandbox.LeaseFilter{}); err != nil {
		t.Error(err)
	}
	if err := reconciler.Serve(t.Context(), s.config, nil); sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "another program serves") {
		t.Errorf("a second one on the same socket: %v", err)
	}
}

// TestAHangupReadsSettingsAgain runs the command as an operator does.
func TestAHangupReadsSettingsAgain(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	settings := i.write("settings.yaml", "cleanup-ttl: 2h\n")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), argsVar+"="+strings.Join([]string{"--config", settings, "--listen", "127.0.0.1:0", "--log-format", "json",
		"--ledger", "sqlite://" + i.dir + "/ledger.db", "--token-file", i.dir + "/tokens", "--webhook-secret-file", i.dir + "/secrets"}, " "))
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	until := func(msg string) (line map[string]any) {
		t.Helper()
		for lines.Scan() {
			line = nil
			if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line["msg"] == msg {
				return line
			}
			t.Log(lines.Text())
		}
		t.Fatalf("it ended without saying %q", msg)
		return nil
	}
	until("reconciler: serving")
	i.write("settings.yaml", "cleanup-ttl: 3h\nlog-level: warn\n")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if line := until("reconciler: a changed setting waits for a restart"); line["setting"] != "cleanup-ttl" || line["now"] != "2h0m0s" || line["then"] != "3h0m0s" {
		t.Errorf("%v", line)
	}
	i.write("settings.yaml", "cleanup: 3h\n")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	// At the level warn, nothing tells of the files that were read in between.
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"level":"INFO"`) {
			t.Errorf("at the level warn it says %s", lines.Text())
		}
		if strings.Contains(lines.Text(), "settings stay as they were") {
			break
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("stopped, it ends with %v", err)
	}
}
