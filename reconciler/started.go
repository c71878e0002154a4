package reconciler

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
)

// Started describes how to reach a reconciler that has just started, and what it uses. It has no credentials.
type Started struct {
	// Address is the listen address: host:port, or the path of a socket.
	Address string
	Version string
	// LedgerID names the ledger in containers' names, and Ledger is its URL.
	LedgerID, Ledger string
	// API, Dashboard and Webhook are URLs. Dashboard is "" without one.
	API, Dashboard, Webhook string
	// TokenFile is "" if only the ledger has tokens.
	TokenFile, WebhookSecretFile string
	// Engine is the address of the Docker Engine, and the Cloudflare account, if any.
	Engine string
	// Try is a first command for a shell.
	Try string
}

// started describes the reconciler that listens on an address.
func (c Config) started(address, ledgerID string, cert *certificate) (Started, error) {
	engine, err := docker.Address(c.Docker)
	if err != nil {
		return Started{}, err
	}
	s := Started{
		Address:           address,
		Version:           c.Version,
		LedgerID:          ledgerID,
		Ledger:            location.Redact(c.LedgerURL),
		API:               c.url(address, cert),
		TokenFile:         c.TokenFile,
		WebhookSecretFile: c.SecretFile,
		Engine:            "docker " + engine,
	}
	s.Webhook = s.API + "/v1/conditions"
	if c.Dashboard && socket(c.Listen) == "" {
		s.Dashboard = s.API + "/ui/"
	}
	if c.Cloudflare.AccountID != "" {
		s.Engine += ", cloudflare " + c.Cloudflare.AccountID
	}
	command := cmp.Or(c.Command, "sandbox")
	s.Try = command + " lease list --url " + word(s.API) + " --token-file " + word(s.TokenFile)
	if s.TokenFile == "" {
		s.Try = command + " token create ops --scope admin --ledger " + word(s.Ledger)
	}
	return s, nil
}

// url returns the URL for clients on this machine.
func (c Config) url(address string, cert *certificate) string {
	if socket(c.Listen) != "" {
		return c.Listen
	}
	scheme, name := "http", ""
	if cert != nil {
		scheme, name = "https", cert.name()
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil { // a listener's address has both
		return scheme + "://" + address
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(cmp.Or(name, host), port)
}

// word quotes a word for a shell, if it needs that.
func word(s string) string {
	if strings.ContainsAny(s, " \t'\"\\$&;|<>()*?[]#~`!") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// log logs it in one line.
func (s Started) log(log *slog.Logger) {
	log.Info("reconciler: serving", "address", s.Address, "ledger", s.Ledger, "ledger_id", s.LedgerID, "api", s.API,
		"dashboard", s.Dashboard, "token_file", s.TokenFile, "webhook", s.Webhook,
		"webhook_secret_file", s.WebhookSecretFile, "engine", s.Engine, "try", s.Try, "version", s.Version)
}

// String returns lines for a terminal. Each ends with a newline.
func (s Started) String() string {
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "  %-10s %s\n", name, value) }
	fmt.Fprintf(&b, "Sandbox reconciler %s is ready.\n", s.Version)
	line("API", s.API)
	line("Dashboard", cmp.Or(s.Dashboard, "off"))
	line("Token", cmp.Or(s.TokenFile, "none in a file; only those in the ledger are accepted"))
	line("Webhook", s.Webhook+", secrets in "+s.WebhookSecretFile)
	line("Ledger", s.LedgerID+", "+s.Ledger)
	line("Engine", s.Engine)
	line("Try", s.Try)
	return b.String()
}
