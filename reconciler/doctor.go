package reconciler

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/oidc"
)

// Verdict is the result of one check.
type Verdict string

// The verdicts.
const (
	VerdictOK      Verdict = "ok"
	VerdictWarning Verdict = "warning" // it works, but may cause trouble later
	VerdictProblem Verdict = "problem" // serve or sandboxes would fail
)

// Symptom is the finding of one check.
type Symptom struct {
	Subject string  `json:"subject"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	// Advice says what to do, "" for nothing.
	Advice string `json:"advice,omitempty"`
}

const (
	// examinationLimit is the time limit of one check.
	examinationLimit = 15 * time.Second
	// answerLimit is how long a program at our address may take to respond.
	answerLimit = 3 * time.Second
	// maxAhead is how much two clocks may differ. A larger difference confuses the times in logs, and at five minutes
	// webhook signatures fail.
	maxAhead = 2 * time.Second
	// minFree is the free disk space that a ledger should have. It holds a few million events.
	minFree = 1 << 30
	// soon is how long before the end of a secret doctor warns.
	soon = 7 * 24 * time.Hour
)

// Examine checks everything that Serve would use. It creates and changes nothing.
func Examine(ctx context.Context, c Config) []Symptom {
	d := &doctor{Config: c}
	for _, look := range []func(context.Context){
		d.tokens, d.secrets, d.keys, d.logins, d.host, d.workspaces, d.prices, d.proxies, d.listen, d.ledger, d.state,
		d.docker, d.cloudflare,
	} {
		bounded, cancel := context.WithTimeout(ctx, examinationLimit)
		look(bounded)
		cancel()
	}
	return d.symptoms
}

type doctor struct {
	Config
	machine  *host.Host // nil if its settings are wrong
	symptoms []Symptom
}

func (d *doctor) say(subject string, v Verdict, found, advice string) {
	d.symptoms = append(d.symptoms, Symptom{Subject: subject, Verdict: v, Found: found, Advice: advice})
}

// fail reports an error that would end serve.
func (d *doctor) fail(subject string, err error, advice string) {
	d.say(subject, VerdictProblem, err.Error(), advice)
}

func (d *doctor) tokens(context.Context) {
	if d.TokenFile == "" {
		d.say("tokens", VerdictOK, "only those in the ledger", "")
		return
	}
	tokens, err := access.LoadTokens(d.TokenFile)
	if err != nil {
		d.fail("tokens", err,
			"create one with serve --generate-credentials, add a line with name and token, or use the ledger: token create")
		return
	}
	d.say("tokens", VerdictOK, fmt.Sprintf("%d in %s, and those in the ledger", len(tokens), d.TokenFile), "")
}

func (d *doctor) secrets(context.Context) {
	secrets, err := access.LoadSecrets(d.SecretFile)
	if err != nil {
		d.fail("webhook secrets", err, "create one with serve --generate-credentials")
		return
	}
	last := time.Time{} // the time until which any is valid, zero for no limit
	for i, s := range secrets {
		if s.NotAfter.IsZero() {
			last = time.Time{}
			break
		}
		if i == 0 || s.NotAfter.After(last) {
			last = s.NotAfter
		}
	}
	found := fmt.Sprintf("%d in %s", len(secrets), d.SecretFile)
	switch left := time.Until(last); {
	case last.IsZero():
		d.say("webhook secrets", VerdictOK, found, "")
	case left <= 0:
		d.say("webhook secrets", VerdictProblem, found+", all expired; the last was valid until "+last.Format(time.RFC3339),
			"add a new secret and give it to the game servers: signed conditions are rejected")
	case left < soon:
		d.say("webhook secrets", VerdictWarning, found+"; the last is valid until "+last.Format(time.RFC3339),
			"add a new secret and give it to the game servers")
	default:
		d.say("webhook secrets", VerdictOK, found, "")
	}
}

func (d *doctor) keys(context.Context) {
	file, create := d.keyFile()
	if file == "" {
		d.say("secret keys", VerdictWarning, "none",
			"set --secret-key-file: without it, environments have no secrets and sessions no variables")
		return
	}
	n, err := seal.Count(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && create:
		d.say("secret keys", VerdictOK, file+" is created when needed", "")
	case err != nil:
		d.fail("secret keys", err,
			"create one with serve --generate-credentials, or copy it from another reconciler of the ledger")
	default:
		d.say("secret keys", VerdictOK, fmt.Sprintf("%d in %s", n, file),
			"back it up apart from the ledger: without it, no secret can be decrypted")
	}
}

// logins checks the settings of OpenID Connect. It does not ask the provider: serve starts without it.
func (d *doctor) logins(context.Context) {
	if !d.OIDC.Enabled() {
		return
	}
	if _, err := oidc.New(d.OIDC, nil, slog.New(slog.DiscardHandler)); err != nil {
		d.fail("logins", err, "")
		return
	}
	d.say("logins", VerdictOK, "with tokens, and at "+d.OIDC.Issuer, "")
}

func (d *doctor) host(context.Context) {
	var err error
	if d.machine, err = host.New(d.Host); err != nil {
		d.fail("host", err, "")
		return
	}
	found := "no host directories or variables are shared"
	if len(d.Host.Directories)+len(d.Host.Variables) > 0 {
		found = fmt.Sprintf("environments may use %s and %s", printable.Count(len(d.Host.Directories), "directory",
			"directories"), printable.Count(len(d.Host.Variables), "variable", "variables"))
	}
	d.say("host", VerdictOK, found, "")
}

func (d *doctor) workspaces(context.Context) {
	if d.machine == nil {
		return // host has reported why
	}
	mirrors, err := d.Workspaces.store(d.LedgerURL, d.machine)
	if err != nil {
		d.fail("workspaces", err, "")
		return
	}
	if mirrors == nil {
		return
	}
	from := slices.Clone(d.Workspaces.Allow)
	if d.machine.HasDirectories() {
		from = append(from, "the shared host directories")
	}
	d.say("workspaces", VerdictOK, "may be fetched from "+strings.Join(from, ", "), "")
}

func (d *doctor) proxies(context.Context) {
	if len(d.TrustedProxies) == 0 {
		return
	}
	if _, err := d.Config.proxies(); err != nil {
		d.fail("proxies", err, "")
		return
	}
	d.say("proxies", VerdictOK, "X-Forwarded-For is trusted from "+strings.Join(d.TrustedProxies, ", "), "")
}

func (d *doctor) prices(context.Context) {
	if d.DockerPriceBook == "" {
		d.say("prices", VerdictOK, "sandboxes on Docker are free", "")
		return
	}
	book, err := pricing.Load(d.DockerPriceBook)
	if err != nil {
		d.fail("prices", err, "")
		return
	}
	d.say("prices", VerdictOK, book.Name+" of "+book.AsOf+" in "+d.DockerPriceBook, "")
}

// listen tries to listen on the address, unless a reconciler serves there.
func (d *doctor) listen(ctx context.Context) {
	if d.TLSCert != "" {
		if _, err := loadCertificate(d.TLSCert, d.TLSKey, slog.New(slog.DiscardHandler)); err != nil {
			d.fail("certificate", err, "")
		}
	}
	if answers(ctx, d.Config) {
		d.say("address", VerdictOK, "a reconciler serves on "+d.Listen, "")
		return
	}
	if path := socket(d.Listen); path != "" {
		d.socket(ctx, path)
		return
	}
	var l net.ListenConfig
	listener, err := l.Listen(ctx, "tcp", d.Listen)
	if err != nil {
		d.fail("address", err, "choose another address with --listen, or find the program that uses it: ss -ltnp")
		return
	}
	if err := listener.Close(); err != nil {
		d.fail("address", err, "")
		return
	}
	if d.Insecure && d.isPlain() {
		d.say("address", VerdictWarning, d.Listen+" serves other machines without TLS",
			"set --tls-cert and --tls-key, and remove --insecure")
		return
	}
	d.say("address", VerdictOK, d.Listen+" is free", "")
}

// socket checks that serve can create a unix socket.
func (d *doctor) socket(ctx context.Context, path string) {
	_, err := isStale(ctx, path)
	if err == nil {
		_, err = os.Stat(filepath.Dir(path))
	}
	if err != nil {
		d.fail("address", err, "create its directory, find the program that uses it (ss -lxp), or choose another socket "+
			"with --listen")
		return
	}
	d.say("address", VerdictOK, d.Listen+" is free", "")
}

// answers reports whether a reconciler seems to serve at the address.
func answers(ctx context.Context, c Config) bool {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the request holds no secret, and only the status counts
	defer transport.CloseIdleConnections()
	url := "http://" + c.Listen
	if path := socket(c.Listen); path != "" {
		url = "http://reconciler"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	} else if c.TLSCert != "" {
		url = "https://" + c.Listen
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/livez", nil)
	if err != nil {
		return false
	}
	answer, err := (&http.Client{Timeout: answerLimit, Transport: transport}).Do(r)
	if err != nil {
		return false
	}
	return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}

func (d *doctor) ledger(ctx context.Context) {
	x, err := storage.Examine(ctx, d.LedgerURL)
	if err != nil {
		d.fail("ledger", err, "")
		return
	}
	found := "none yet at " + location.Redact(d.LedgerURL)
	if x.ID != "" {
		found = fmt.Sprintf("%s, schema %d", x.ID, x.Schema)
	}
	if x.Server != "" {
		found += ", PostgreSQL " + x.Server
	}
	switch {
	case x.MinReader > x.Known:
		d.say("ledger", VerdictProblem, found,
			fmt.Sprintf("upgrade this program: it supports schema %d, but the ledger needs %d", x.Known, x.MinReader))
	case x.ID != "" && x.Schema < x.Known:
		d.say("ledger", VerdictWarning, found, fmt.Sprintf("back it up: serve will migrate it to schema %d", x.Known))
	default:
		d.say("ledger", VerdictOK, found, "")
	}
	if x.ID != "" && x.Path != "" {
		d.pages(ctx)
	}
	if x.Path != "" && x.Free > 0 {
		room := fmt.Sprintf("%d MiB are free for %s", x.Free>>20, x.Path)
		if x.Free < minFree {
			d.say("disk", VerdictWarning, room, "free disk space: with a full disk, serve rejects conditions")
		} else {
			d.say("disk", VerdictOK, room, "")
		}
	}
	if x.Server != "" {
		d.clock("clock of PostgreSQL", x.Ahead)
	}
}

// pages checks the ledger for damage.
func (d *doctor) pages(ctx context.Context) {
	switch err := storage.Verify(ctx, d.LedgerURL); {
	case err == nil:
		d.say("ledger pages", VerdictOK, "intact", "")
	case ctx.Err() != nil:
		d.say("ledger pages", VerdictWarning, fmt.Sprintf("not checked in %s", examinationLimit),
			"the ledger is large: take a backup, which checks all of it")
	default:
		d.fail("ledger pages", err, "stop serve, move the ledger away, and restore a backup")
	}
}

func (d *doctor) state(ctx context.Context) {
	url := cmp.Or(d.SnapshotURL, location.SnapshotURL(d.LedgerURL))
	switch {
	case url == "":
		d.say("state", VerdictWarning, "no bucket",
			"set --state-url: without it, environments have no snapshots, and commands keep only 64 KiB of output")
		return
	case strings.HasPrefix(url, "file://"):
		d.say("state", VerdictOK, "the directory of "+url+", which is created when missing", "")
		return
	}
	bucket, err := snapshotstore.Open(ctx, url)
	if err == nil {
		err = errors.Join(bucket.Reach(ctx), bucket.Close())
	}
	if err != nil {
		d.fail("state", err,
			"check its name and region, and that the credentials allow listing, reading, writing and deleting")
		return
	}
	d.say("state", VerdictOK, bucket.String()+" is reachable", "")
}

func (d *doctor) docker(ctx context.Context) {
	x, err := docker.Examine(ctx, d.Docker)
	if err != nil {
		d.fail("engine", err, "")
		return
	}
	found := fmt.Sprintf("Docker %s (API %s, cgroup v%s, %s) at %s",
		x.Version, x.API, x.CgroupVersion, x.Architecture, x.Host)
	d.say("engine", VerdictOK, found, "")
	if len(x.Unlimited) > 0 {
		d.say("limits", VerdictProblem, "the engine cannot limit "+strings.Join(x.Unlimited, ", "),
			"enable these cgroup controllers")
	} else {
		d.say("limits", VerdictOK, "memory, CPU and processes", "")
	}
	if !x.Seccomp {
		d.say("seccomp", VerdictProblem, "off",
			"use an engine and a kernel with seccomp: sandboxes run untrusted code")
	} else {
		d.say("seccomp", VerdictOK, "on", "")
	}
	if !x.LiveRestore {
		d.say("live-restore", VerdictWarning, "off",
			`set "live-restore": true in the engine's daemon.json: without it, a restart of the engine stops every sandbox`)
	} else {
		d.say("live-restore", VerdictOK, "on", "")
	}
	d.clock("clock of the engine", x.Ahead)
}

func (d *doctor) cloudflare(ctx context.Context) {
	if d.Cloudflare.AccountID == "" {
		return
	}
	account, err := deploy.New(d.Cloudflare)
	if err == nil {
		_, err = account.Account(ctx)
		err = errors.Join(err, account.Close())
	}
	if err != nil {
		d.fail("cloudflare", err, "")
		return
	}
	d.say("cloudflare", VerdictOK, "account "+d.Cloudflare.AccountID+" is reachable", "")
}

func (d *doctor) clock(subject string, ahead time.Duration) {
	found := fmt.Sprintf("differs from this machine's by %s", ahead.Abs().Round(time.Millisecond))
	if ahead.Abs() > maxAhead {
		d.say(subject, VerdictWarning, found, "synchronize both clocks with NTP")
		return
	}
	d.say(subject, VerdictOK, found, "")
}
