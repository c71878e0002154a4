package reconciler_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/logtest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
)

// operated is the program as an operator runs it, with a secret of every kind, and all of its output.
type operated struct {
	*install
	token, url string
	cloudflare *httptest.Server  // rejects the token
	secrets    map[string]string // by description
	shown      map[string]string // by the place of the output
	log        logtest.Buffer
	process    *exec.Cmd
	ended      chan error
}

// operate runs the program until the test ends.
func operate(t *testing.T) *operated {
	t.Helper()
	o := &operated{
		install: newInstall(t),
		token:   access.NewToken(),
		shown:   map[string]string{},
		ended:   make(chan error, 1),
	}
	o.secrets = map[string]string{"the token of a file": o.token}
	for _, what := range []string{
		"the API token of Cloudflare", "the password of the gateways' proxy", "the password of PostgreSQL", "the key of S3",
		"the session of S3", "a secret of an environment", "a variable of a command",
	} {
		o.secrets[what] = "canary" + strings.ToLower(strings.TrimPrefix(access.NewToken(), "sbl_"))
	}
	o.cloudflare = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"success":false,"errors":[{"code":10000,"message":"Authentication error"}]}`)
	}))
	t.Cleanup(o.cloudflare.Close)
	secret := webhook.NewSecret()
	o.secrets["a webhook secret"] = strings.TrimPrefix(secret, "whsec_")
	o.Write("tokens", "ops "+o.token+"\n")
	o.Write("secrets", secret+"\n")
	o.process = o.program(t.Context(), "serve", "--log-level", "debug", "--log-format", "json", "--listen", "127.0.0.1:0",
		"--ledger", "sqlite://"+o.Dir+"/ledger.db")
	o.process.Stderr = &o.log
	if err := o.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { o.ended <- o.process.Wait() }()
	t.Cleanup(func() { _ = o.process.Process.Kill() }) // it may have exited
	if !testwait.Poll(time.Minute, func() bool {
		for _, line := range o.lines() {
			if line["msg"] == "reconciler: serving" {
				o.url = fmt.Sprint("http://", line["address"])
			}
		}
		return o.url != ""
	}) {
		t.Fatalf("it does not serve: %s", o.log.String())
	}
	return o
}

// program returns a command of the program.
func (o *operated) program(ctx context.Context, args ...string) *exec.Cmd {
	args = append(args, "--state-url", "s3://canary?region=us-east-1&endpoint=http://127.0.0.1:1")
	cmd := o.Command(ctx, args...)
	cmd.Env = append(cmd.Env,
		"CLOUDFLARE_ACCOUNT_ID=0123456789abcdef0123456789abcdef",
		"CLOUDFLARE_API_TOKEN="+o.secrets["the API token of Cloudflare"], "CLOUDFLARE_API_BASE_URL="+o.cloudflare.URL,
		"SANDBOX_GATEWAY_PROXY=http://games:"+o.secrets["the password of the gateways' proxy"]+"@127.0.0.1:1",
		"PGPASSWORD="+o.secrets["the password of PostgreSQL"], "AWS_ACCESS_KEY_ID=AKIDCANARY",
		"AWS_SECRET_ACCESS_KEY="+o.secrets["the key of S3"],
		"AWS_SESSION_TOKEN="+o.secrets["the session of S3"], "AWS_EC2_METADATA_DISABLED=true")
	return cmd
}

// see records the output of a command, and its end.
func (o *operated) see(args ...string) {
	ctx, cancel := context.WithTimeout(o.Context(), 30*time.Second)
	defer cancel()
	out, err := o.program(ctx, args...).CombinedOutput()
	if ctx.Err() != nil {
		o.Errorf("%v does not end", args)
	}
	o.shown[fmt.Sprint(len(o.shown), " ", args[0])] = string(out) + fmt.Sprint(err)
}

// lines returns the lines of the log.
func (o *operated) lines() (all []map[string]any) {
	for text := range strings.Lines(o.log.String()) {
		var line map[string]any
		if strings.HasSuffix(text, "\n") && json.Unmarshal([]byte(text), &line) == nil {
			all = append(all, line)
		}
	}
	return all
}

// ask sends a request and records the answer.
func (o *operated) ask(method, path, body string, header ...string) (int, string) {
	o.Helper()
	r, err := http.NewRequestWithContext(o.Context(), method, o.url+path, strings.NewReader(body))
	if err != nil {
		o.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+o.token)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		o.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		o.Fatal(err)
	}
	o.shown[fmt.Sprint(len(o.shown), " ", method, " ", path)] = string(got) + fmt.Sprint(resp.Header)
	return resp.StatusCode, string(got)
}

func (o *operated) want(status int, method, path, body string, header ...string) string {
	o.Helper()
	got, answer := o.ask(method, path, body, header...)
	if got != status {
		o.Fatalf("%s %s is answered with %d: %s", method, path, got, answer)
	}
	return answer
}

// command runs a command of the client and records its output.
func (o *operated) command(args ...string) {
	var out bytes.Buffer
	command := cli.New(cli.Config{})
	command.SetIn(strings.NewReader(""))
	command.SetOut(&out)
	command.SetErr(&out)
	code := cli.Run(o.Context(), command, args)
	o.shown[strings.Join(args[:1], " ")+fmt.Sprint(" ", len(o.shown))] = out.String() + fmt.Sprint(code)
}

// cleanUp destroys the objects of a failed test.
func (o *operated) cleanUp() {
	r, err := http.NewRequestWithContext(context.WithoutCancel(o.Context()), http.MethodDelete,
		o.url+"/v1/environments/catan-7?force=true", nil)
	if err != nil {
		o.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+o.token)
	if resp, err := http.DefaultTransport.RoundTrip(r); err == nil { // otherwise it has stopped, as it should
		_ = resp.Body.Close()
	}
}

// stop ends the program as systemd does.
func (o *operated) stop() {
	o.Helper()
	if err := o.process.Process.Signal(syscall.SIGTERM); err != nil {
		o.Fatal(err)
	}
	if err := <-o.ended; err != nil {
		o.Errorf("stopped, it ends with %v", err)
	}
}

// forms returns the forms that a secret may take in the output.
func forms(secret string) []string {
	all := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), hex.EncodeToString([]byte(secret))}
	for _, text := range []string{secret, "games:" + secret, "sandbox:" + secret, "whsec_" + secret} {
		all = append(all, base64.RawStdEncoding.EncodeToString([]byte(text)),
			base64.RawURLEncoding.EncodeToString([]byte(text)))
	}
	if raw, err := base64.StdEncoding.DecodeString(secret); err == nil { // a webhook secret
		all = append(all, string(raw), hex.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestSecretsShowNowhereAndLogsSayWhatTheyAreAbout runs a lease's life with secrets of every kind, valid and invalid.
// It checks every byte of the program's output.
func TestSecretsShowNowhereAndLogsSayWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	o := operate(t)
	s := o.secrets
	var made struct{ Token string }
	if _, answer := o.ask("POST", "/v1/tokens",
		`{"name":"game","scopes":["admin"]}`); json.Unmarshal([]byte(answer), &made) != nil || made.Token == "" {
		t.Fatalf("a token is made as %s", answer)
	}
	clear(o.shown) // only the creator of a token sees it, once
	s["a token of the ledger"] = made.Token

	environment := `{"type":"catan","image":"` + dockertest.Busybox(t) + `","network":"none","env":{"LEVEL":"3"},` +
		`"secrets":["key"],"secret_values":{"key":"` + s["a secret of an environment"] + `"}}`
	o.want(200, "PUT", "/v1/environments/catan-7", environment)
	defer o.cleanUp()
	o.want(201, "POST", "/v1/leases", `{"agent_did":"did:plc:ann","environment_id":"catan-7"}`, "X-Request-Id",
		"the-request-of-ann")
	const lease = "/v1/leases/did:plc:ann::catan-7"
	o.want(200, "POST", lease+"/exec", `{"command":["true"],"env":{"PASSWORD":"`+s["a variable of a command"]+`"}}`)
	o.want(200, "POST", lease+"/sleep", "")

	// An error repeats input only if that cannot be a secret.
	for _, token := range []string{o.token, made.Token} {
		for _, wrong := range []string{token[1:], token + "x", strings.ToUpper(token), token + " " + token} {
			o.want(401, "GET", "/v1/leases", "", "Authorization", "Bearer "+wrong)
			o.want(401, "GET", "/metrics", "", "Authorization", "Basic "+wrong)
		}
		o.want(404, "GET", "/v1/nothing", "", "Authorization", "Bearer "+token)
	}
	for _, body := range []string{
		strings.Replace(environment, `"key":"`, `"other":"`, 1), strings.Replace(environment, `["key"]`, `["k e y"]`, 1),
		environment[:len(environment)-3], strings.Replace(environment, `"secret_values"`, `"secret_value"`, 1),
		strings.Replace(environment, `"key":"`, `"key":5,"x":"`, 1),
		strings.Replace(environment, `"LEVEL"`, `"LE=VEL"`, 1), strings.Replace(environment, `"type":"catan"`, `"type":5`, 1),
	} {
		if code, answer := o.ask("PUT", "/v1/environments/catan-8", body); code < 400 || code >= 500 {
			t.Errorf("%s is answered with %d: %s", body, code, answer)
		}
	}
	for _, body := range []string{
		`{"command":["no-such-program"],"env":{"PASSWORD":"` + s["a variable of a command"] + `"}}`,
		`{"command":["true"],"env":{"A B=":"` + s["a variable of a command"] + `"}}`,
		`{"command":[],"env":{"PASSWORD":"` + s["a variable of a command"] + `"}}`,
		`{"command":["true"],"env":"` + s["a variable of a command"] + `"}`,
	} {
		o.ask("POST", lease+"/exec", body)
	}
	condition := `{"type":"agent.death","timestamp":"` + time.Now().UTC().Format(time.RFC3339) +
		`","data":{"environment_id":"catan-7","agent_did":"did:plc:bea"}}`
	o.want(401, "POST", "/v1/conditions", condition, "Authorization", "", "webhook-id", "m", "webhook-timestamp", "1",
		"webhook-signature", "v1,"+s["a webhook secret"])
	o.want(401, "POST", "/v1/conditions", condition, "Authorization", "Bearer whsec_"+s["a webhook secret"])
	o.want(202, "POST", "/v1/conditions", condition, "webhook-id", "m")

	o.browse(t)
	for _, path := range []string{
		"/metrics", "/openapi.json", "/livez", "/readyz", "/v1/environments", "/v1/environments/catan-7", "/v1/leases", lease,
		lease + "/execs", "/v1/events", "/v1/deliveries", "/v1/drift", "/v1/costs", "/v1/tokens", "/v1/audit", "/v1/ledger",
		lease + "/usage", lease + "/health",
	} {
		o.ask("GET", path, "")
	}
	at := []string{"--url", o.url, "--token-file", o.Dir + "/tokens", "--output", "json"}
	for _, args := range [][]string{
		{"lease", "list"}, {"env", "list"}, {"events"}, {"cost"}, {"token", "list"}, {"audit"}, {"drift"},
	} {
		o.command(append(args, at...)...)
		o.command(append(args, "--url", o.url+"/nothing", "--token-file", o.Dir+"/tokens", "--output", "json")...)
		o.command(append(args, "--url", "http://ops:"+o.token+"@127.0.0.1:1", "--token-file", o.Dir+"/tokens",
			"--output", "json")...)
	}
	postgres := "postgres://sandbox:" + s["the password of PostgreSQL"] + "@127.0.0.1:1/sandbox"
	for _, ledger := range []string{
		"sqlite://" + o.Dir + "/ledger.db", postgres, postgres + "?sslmode=wrong",
		strings.Replace(postgres, ":1/", ":port/", 1), strings.Replace(postgres, "postgres:", "mysql:", 1),
	} {
		o.see("serve", "--check", "--ledger", ledger)
		o.see("doctor", "--output", "json", "--ledger", ledger)
		if !strings.HasPrefix(ledger, "sqlite") {
			o.see("serve", "--listen", "127.0.0.1:0", "--log-level", "debug",
				"--secret-key-file", o.Dir+"/ledger.db.key", "--ledger", ledger)
		}
	}
	o.want(200, "POST", lease+"/release", "")
	o.want(204, "DELETE", "/v1/environments/catan-7", "")
	o.stop()

	o.shown["the log"] = o.log.String()
	if all := fmt.Sprint(o.shown); len(o.shown) < 100 || !strings.Contains(all, "PASSWORD") ||
		!strings.Contains(all, "127.0.0.1:1") {
		t.Errorf("the test proves nothing: none of %d outputs shows even the names of secrets", len(o.shown))
	}
	for where, text := range o.shown {
		for what, secret := range s {
			for _, form := range forms(secret) {
				if strings.Contains(text, form) {
					t.Errorf("%s shows %s, as %q:\n%.2000s", where, what, form, text)
				}
			}
		}
	}
	o.checkLog()
}

// browse reads the dashboard, and makes mistakes there.
func (o *operated) browse(t *testing.T) {
	t.Helper()
	form := []string{
		"Authorization", "", "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin",
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.url+"/ui/login",
		strings.NewReader("token="+o.token))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", form[3])
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || resp.Body.Close() != nil || len(resp.Cookies()) != 1 {
		t.Fatalf("logging in: %+v, %v", resp, err)
	}
	login := resp.Cookies()[0].Value // only this answer shows it to the browser
	o.secrets["a log-in"] = login
	o.ask("POST", "/ui/login", "token="+o.token+"x", form...)
	o.ask("POST", "/ui/login?token="+o.token[1:], "next=/ui/&token=%zz"+o.token, form...)
	for _, cookie := range []string{login, login + "x"} {
		for _, path := range []string{
			"/ui/", "/ui/environments/catan-7", "/ui/leases", "/ui/leases/did:plc:ann::catan-7",
			"/ui/leases/did:plc:ann::catan-7/expire", "/ui/leases/did:plc:ann::catan-7/usage", "/ui/costs", "/ui/drift",
			"/ui/egress", "/ui/webhook", "/ui/webhook/message?id=m", "/ui/nothing", "/ui/login",
		} {
			o.ask("GET", path, "", "Authorization", "", "Cookie", "sandbox_login="+cookie)
		}
		o.ask("POST", "/ui/leases/did:plc:ann::catan-7/expire", "csrf="+cookie,
			append(form, "Cookie", "sandbox_login="+cookie)...)
	}
}

// checkLog checks that each line names its subject, with the same keys.
func (o *operated) checkLog() {
	lines := o.lines()
	if n := strings.Count(o.log.String(), "\n"); n != len(lines) || n < 50 {
		o.Errorf("of %d lines, %d are JSON", n, len(lines))
	}
	misnamed := []string{
		"err", "env", "id", "agent", "agent_did", "lease_id", "environment_id", "sandbox_id", "request", "requestId",
		"request-id",
	}
	var ofAnn bool
	for _, line := range lines {
		has := func(keys ...string) bool {
			return !slices.ContainsFunc(keys, func(key string) bool { return line[key] == nil })
		}
		if line["msg"] == "request" {
			if !has("method", "path", "status", "took", "request_id", "caller", "remote") {
				o.Errorf("of a request it says %v", line)
			}
			if path := fmt.Sprint(line["path"]); strings.HasPrefix(path, "/v1/leases/") && line["caller"] != "" &&
				(line["lease"] != "did:plc:ann::catan-7" || line["environment"] != "catan-7") {
				o.Errorf("the line about a lease's request is %v", line)
			}
			ofAnn = ofAnn ||
				line["request_id"] == "the-request-of-ann" && line["environment"] == "catan-7" && line["caller"] == "token:ops"
		}
		if has("lease") != has("lease", "environment") {
			o.Errorf("of a lease it says %v", line)
		}
		for key := range line {
			if slices.Contains(misnamed, key) {
				o.Errorf("%v has the key %s", line, key)
			}
		}
	}
	if !ofAnn {
		o.Error("no line names the request that acquired ann's lease")
	}
}
