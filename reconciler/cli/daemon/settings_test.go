package daemon_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/daemon"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/servetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// install is a directory with the files that serve reads, and a settings file.
type install struct{ *servetest.Install }

// check runs serve --check with settings, and returns the effective settings.
func (i install) check(settings string, args ...string) (string, error) {
	i.Helper()
	file := i.Write("settings.yaml", settings)
	cmd := daemon.NewServeCommand(cli.Config{Version: "test"})
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"--check", "--config", file, "--webhook-secret-file", i.Dir + "/secrets"}, args...))
	err := cmd.ExecuteContext(i.Context())
	return out.String(), err
}

func TestFlagsGoBeforeTheEnvironmentAndThatBeforeTheFile(t *testing.T) {
	i := install{servetest.New(t)}
	t.Setenv("SANDBOX_SERVE_LOG_FORMAT", "json")
	t.Setenv("SANDBOX_SERVE_CLEANUP_TTL", "2h")
	t.Setenv("SANDBOX_SERVE_MOUNT_ALLOW", i.Dir)
	out, err := i.check(`# of this machine
ledger: postgres://sandbox:hunter2@db/sandbox
log-format: text
cleanup-ttl: 3h
listen: "[::1]:1"
mount-allow: [/nowhere]
oidc-scope: ["a,b", email]
oidc-role: []
env-allow:
  - GAME
  - LANG
`, "--cleanup-ttl", "4h", "--workspace-allow", "*.example.com", "--workspace-allow", "example.org")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"cleanup-ttl: 4h0m0s # flag", "log-format: json # environment", `listen: "[::1]:1" # file`,
		`workspace-allow: ["*.example.com", example.org] # flag`,
		"log-level: INFO # default", "env-allow: [GAME, LANG] # file", `oidc-scope: ["a,b", email] # file`, "oidc-role: [] # file", "mount-allow: [" + i.Dir + "] # environment",
		"ledger: postgres://sandbox:xxxxx@db/sandbox # file",
	} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("it does not say %q:\n%s", line, out)
		}
	}
	if strings.Contains(out, "hunter2") {
		t.Error("it shows a password")
	}
	// The output is a settings file.
	again, err := i.check(strings.ReplaceAll(out, "xxxxx", "hunter2"))
	if err != nil || !strings.Contains(again, "cleanup-ttl: 2h0m0s # environment") ||
		!strings.Contains(again, `listen: "[::1]:1" # file`) ||
		!strings.Contains(again, `workspace-allow: ["*.example.com", example.org] # file`) ||
		!strings.Contains(again, "ledger: postgres://sandbox:xxxxx@db/sandbox # file") {
		t.Errorf("%v:\n%s", err, again)
	}
}

func TestVariablesThatNameNoSettingAreRefused(t *testing.T) {
	i := install{servetest.New(t)}
	t.Setenv("SANDBOX_SERVE_LISTENS", "127.0.0.1:1")
	if _, err := i.check(""); sandbox.CodeOf(err) != sandbox.Invalid ||
		!strings.Contains(err.Error(), "unknown setting in environment variable SANDBOX_SERVE_LISTENS; did you mean listen?") {
		t.Error(err)
	}
}

func TestCheckPrintsThePathsThatServeUses(t *testing.T) {
	t.Parallel()
	i := install{servetest.New(t)}
	ledger := i.Dir + "/ledger.db"
	out, err := i.check("ledger: sqlite://" + ledger + "\ntoken-file: " + i.Dir + "/tokens\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"cloudflare-max-instances: 20 # default", "cloudflare-scheduling-policy: default # default", "secret-key-file: " + ledger + ".key # default",
		"state-url: " + location.SnapshotURL("sqlite://"+ledger) + " # default",
		"workspace-dir: " + location.MirrorDir("sqlite://"+ledger) + " # default",
	} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("it does not say %q:\n%s", line, out)
		}
	}
}

func TestAnEmptyVariableIsNoList(t *testing.T) {
	i := install{servetest.New(t)}
	t.Setenv("SANDBOX_SERVE_TRUSTED_PROXY", "")
	if _, err := i.check(""); sandbox.CodeOf(err) != sandbox.Invalid ||
		!strings.Contains(err.Error(), "environment variable SANDBOX_SERVE_TRUSTED_PROXY: ") ||
		!strings.Contains(err.Error(), "must not be empty; leave it out for the default") {
		t.Error(err)
	}
}

const oidcSettings = "oidc-issuer: https://login.example.com\noidc-client-id: sandbox\noidc-client-secret-file: /nowhere\n" +
	"oidc-redirect-url: https://sandbox.example.com/ui/login/oidc/callback\n"

func TestSettingsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	i := install{servetest.New(t)}
	for settings, says := range map[string]string{
		"listn: 127.0.0.1:1":                       `settings.yaml line 1: unknown setting "listn"; did you mean listen?`,
		"log-level: info\ntoken_file: /t":          `settings.yaml line 2: unknown setting "token_file"; did you mean token-file?`,
		"check: true":                              `unknown setting "check"`,
		"listen: 127.0.0.1:1\nlisten: 127.0.0.1:2": "duplicate setting",
		"listen: [127.0.0.1:1]":                    "line 1: listen: takes a single value, not a list",
		"listen: {port: 1}":                        "listen: want a value",
		"listen:":                                  "listen: want a value",
		"mount-allow: [[a]]":                       "want a list of values",
		"mount-allow: ''":                          "line 1: mount-allow: invalid argument \"\" for \"--mount-allow\" flag: must not be empty",
		"mount-allow: [a, '']":                     "line 1: mount-allow: must not have an empty element",
		"cleanup-ttl: a while":                     "line 1: cleanup-ttl:",
		"cleanup-ttl: 1m":                          "--cleanup-ttl 1m0s is too short",
		"- listen":                                 "want lines of the form `setting: value`",
		"listen: \"":                               "reading the settings file",
		"log-format: xml":                          "--log-format must be text or json",
		"listen: 0.0.0.0:8787":                     "tokens would cross the network in plain text",
		"listen: \":8787\"":                        "tokens would cross the network in plain text",
		"listen: 8787":                             "want host:port, or unix:///path",
		"listen: unix://api.sock":                  "must be absolute",
		"tls-cert: /c":                             "must be set together",
		"tls-cert: /c\ntls-key: /k":                "reading the certificate in /c",
		"trusted-proxy: 10.0.0.1":                  "want a network such as 10.0.0.0/8",
		"token-file: /nowhere":                     "reading credentials",
		"docker-price-book: /nowhere":              "/nowhere",
		"secret-key-file: /nowhere":                "/nowhere",
		"secret-key-file: " + i.Dir + "/tokens":    i.Dir + "/tokens",
		"listen: 0.0.0.0:1\ntrusted-proxy: [x/8]":  "want a network such as 10.0.0.0/8",
		"oidc-client-id: x":                        "need --oidc-issuer",
		"oidc-issuer: http://login.example.com":    "want a URL such as https://login.example.com",
		oidcSettings + "oidc-role: [a=read]\ndashboard: false": "--oidc-issuer needs --dashboard",
		oidcSettings + "oidc-role: [ops=root]":                 "want GROUP=ROLE",
		oidcSettings + "oidc-role: [ops=admin]":                "reading credentials",
	} {
		if out, err := i.check(settings); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want an error that says %q\n%s", settings, err, says, out)
		}
	}
	for _, settings := range []string{
		"", "# nothing", "listen: \"[::1]:1\"", "listen: localhost:1", "listen: unix:///run/api.sock",
		"listen: 0.0.0.0:1\ninsecure: true", "listen: 0.0.0.0:1\ntrusted-proxy: 10.0.0.0/8",
	} {
		if out, err := i.check(settings); err != nil {
			t.Errorf("%q: %v\n%s", settings, err, out)
		}
	}
}

// TestTheGuideNamesEverySetting compares the guide's table and its settings files with the flags of serve.
func TestTheGuideNamesEverySetting(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../templates/guides/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	files := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(guide), -1)
	if len(files) != 2 {
		t.Fatalf("the guide has %d files of settings", len(files))
	}
	for _, file := range files {
		var settings map[string]any
		if err := yaml.Unmarshal([]byte(file[1]), &settings); err != nil || len(settings) < 5 {
			t.Errorf("the guide's file of settings is %v, %v:\n%s", settings, err, file[1])
		}
		for name := range settings {
			if daemon.NewServeCommand(cli.Config{Version: "test"}).Flags().Lookup(name) == nil {
				t.Errorf("the guide's file of settings has %s", name)
			}
		}
	}
	_, table, _ := strings.Cut(string(guide), "| setting | default |")
	table, _, _ = strings.Cut(table, "\n\n")
	told := map[string]string{}
	for _, row := range strings.Split(table, "\n") {
		if cells := strings.Split(row, " | "); len(cells) == 3 {
			told[strings.Trim(cells[0], "| `")] = strings.Trim(cells[1], "`")
		}
	}
	daemon.NewServeCommand(cli.Config{Version: "test"}).Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "config" || f.Name == "check" || f.Name == "generate-credentials" || f.Name == "help" {
			return
		}
		value, ok := told[f.Name]
		if !ok || value != strings.Trim(f.DefValue, "[]") {
			t.Errorf("the guide gives %s the default %q (found: %v), but it is %q", f.Name, value, ok, f.DefValue)
		}
		delete(told, f.Name)
	})
	if len(told) > 0 {
		t.Errorf("the guide names unknown settings: %v", told)
	}
}
