package reconciler_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// install is a directory with all that serve needs, and a file of settings.
type install struct {
	*testing.T
	dir string
}

func newInstall(t *testing.T) *install {
	t.Helper()
	i := &install{t, t.TempDir()}
	i.write("secrets", webhook.NewSecret()+"\n")
	i.write("tokens", "test "+webhook.NewToken()+"\n")
	return i
}

func (i *install) write(name, text string) string {
	i.Helper()
	file := filepath.Join(i.dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		i.Fatal(err)
	}
	return file
}

// check runs serve --check with settings and returns what is effective.
func (i *install) check(settings string, args ...string) (string, error) {
	i.Helper()
	file := i.write("settings.yaml", settings)
	cmd := reconciler.NewServeCommand("test")
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"--check", "--config", file, "--webhook-secret-file", i.dir + "/secrets"}, args...))
	err := cmd.ExecuteContext(i.Context())
	return out.String(), err
}

func TestFlagsGoBeforeTheEnvironmentAndThatBeforeTheFile(t *testing.T) {
	i := newInstall(t)
	t.Setenv("SANDBOX_SERVE_LOG_FORMAT", "json")
	t.Setenv("SANDBOX_SERVE_CLEANUP_TTL", "2h")
	t.Setenv("SANDBOX_SERVE_MOUNT_ALLOW", i.dir)
	out, err := i.check(`# of this machine
ledger: postgres://sandbox:hunter2@db/sandbox
log-format: text
cleanup-ttl: 3h
listen: 127.0.0.1:1
mount-allow: [/nowhere]
env-allow:
  - GAME
  - LANG
`, "--cleanup-ttl", "4h")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"cleanup-ttl: 4h0m0s # flag", "log-format: json # environment", "listen: 127.0.0.1:1 # file", "log-level: INFO # default",
		"env-allow: [GAME, LANG] # file", "mount-allow: [" + i.dir + "] # environment", "ledger: postgres://sandbox:xxxxx@db/sandbox # file",
	} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("it does not say %q:\n%s", line, out)
		}
	}
	if strings.Contains(out, "hunter2") {
		t.Error("it shows a password")
	}
	// What it prints is a file of settings.
	again, err := i.check(strings.ReplaceAll(out, "xxxxx", "hunter2"))
	if err != nil || !strings.Contains(again, "cleanup-ttl: 2h0m0s # environment") || !strings.Contains(again, "ledger: postgres://sandbox:xxxxx@db/sandbox # file") {
		t.Errorf("%v:\n%s", err, again)
	}
}

func TestVariablesThatNameNoSettingAreRefused(t *testing.T) {
	i := newInstall(t)
	t.Setenv("SANDBOX_SERVE_LISTENS", "127.0.0.1:1")
	if _, err := i.check(""); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "SANDBOX_SERVE_LISTENS names no setting; there is listen") {
		t.Error(err)
	}
}

func TestSettingsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	for settings, says := range map[string]string{
		"listn: 127.0.0.1:1":                       `settings.yaml line 1: "listn" names no setting; there is listen`,
		"log-level: info\ntoken_file: /t":          `settings.yaml line 2: "token_file" names no setting; there is token-file`,
		"check: true":                              `"check" names no setting`,
		"listen: 127.0.0.1:1\nlisten: 127.0.0.1:2": "duplicate setting",
		"listen: [127.0.0.1:1]":                    "line 1: listen: takes one value and no list",
		"listen: {port: 1}":                        "listen: want a value",
		"listen:":                                  "listen: want a value",
		"mount-allow: [[a]]":                       "want a list of values",
		"cleanup-ttl: a while":                     "line 1: cleanup-ttl:",
		"cleanup-ttl: 1m":                          "--cleanup-ttl 1m0s is too short",
		"- listen":                                 "want one `setting: value` a line",
		"listen: \"":                               "reading the settings",
		"log-format: xml":                          "--log-format must be text or json",
		"listen: 0.0.0.0:8787":                     "tokens would cross the network in clear",
		"listen: \":8787\"":                        "tokens would cross the network in clear",
		"listen: 8787":                             "want host:port, or unix:///path",
		"listen: unix://api.sock":                  "absolute path",
		"tls-cert: /c":                             "needed both",
		"tls-cert: /c\ntls-key: /k":                "reading the certificate in /c",
		"trusted-proxy: 10.0.0.1":                  "want a network such as 10.0.0.0/8",
		"token-file: /nowhere":                     "cannot read credentials",
		"docker-price-book: /nowhere":              "/nowhere",
		"listen: 0.0.0.0:1\ntrusted-proxy: [x/8]":  "want a network such as 10.0.0.0/8",
	} {
		if out, err := i.check(settings); sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want an error that says %q\n%s", settings, err, says, out)
		}
	}
	for _, settings := range []string{"", "# nothing", "listen: \"[::1]:1\"", "listen: localhost:1", "listen: unix:///run/api.sock",
		"listen: 0.0.0.0:1\ninsecure: true", "listen: 0.0.0.0:1\ntrusted-proxy: 10.0.0.0/8"} {
		if out, err := i.check(settings); err != nil {
			t.Errorf("%q: %v\n%s", settings, err, out)
		}
	}
}

// TestTheGuideNamesEverySetting holds the guide's table against the flags of serve.
func TestTheGuideNamesEverySetting(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../templates/guides/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(guide), "| setting | default |")
	table, _, _ = strings.Cut(table, "\n\n")
	told := map[string]string{}
	for _, row := range strings.Split(table, "\n") {
		if cells := strings.Split(row, " | "); len(cells) == 3 {
			told[strings.Trim(cells[0], "| `")] = strings.Trim(cells[1], "`")
		}
	}
	reconciler.NewServeCommand("test").Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "config" || f.Name == "check" || f.Name == "generate-credentials" || f.Name == "help" {
			return
		}
		value, ok := told[f.Name]
		if !ok || value != strings.Trim(f.DefValue, "[]") {
			t.Errorf("the guide tells of %s the default %q (told: %v), and it is %q", f.Name, value, ok, f.DefValue)
		}
		delete(told, f.Name)
	})
	if len(told) > 0 {
		t.Errorf("the guide tells of settings that there are not: %v", told)
	}
}
