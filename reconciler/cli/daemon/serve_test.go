package daemon_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/daemon"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestTooShortCleanupTTLIsRefusedBeforeAnythingIsOpened(t *testing.T) {
	t.Parallel()
	for _, ttl := range []string{"0s", "59m59s", "-1h"} {
		cmd := daemon.NewServeCommand(cli.Config{Version: "test"})
		cmd.SetArgs([]string{"--cleanup-ttl", ttl, "--ledger", "sqlite:///nowhere/ledger.db"})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		err := cmd.ExecuteContext(t.Context())
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "--cleanup-ttl") ||
			!strings.Contains(err.Error(), "at least 1h0m0s") {
			t.Errorf("%s: %v", ttl, err)
		}
	}
	err := reconciler.Serve(t.Context(), reconciler.Config{CleanupTTL: time.Minute}, nil)
	if sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("without the command: %v", err)
	}
}

func TestSettingsOfGatewaysThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"name server":           {"--gateway-dns", "dns.example"},
		"use the network":       {"--gateway-network", "host"},
		"proxy":                 {"--gateway-proxy", "socks5://proxy.example"},
		"needs --gateway-proxy": {"--gateway-proxy-ca", "ca.pem"},
		"no such file":          {"--gateway-proxy", "https://proxy.example", "--gateway-proxy-ca", "/nowhere/ca.pem"},
		"IPv4 range":            {"--network-pool", "10.0.0.0/8"},
	} {
		cmd := daemon.NewServeCommand(cli.Config{Version: "test"})
		dir := t.TempDir()
		cmd.SetArgs(append(args, "--ledger", "sqlite://"+dir+"/ledger.db", "--generate-credentials",
			"--listen", "127.0.0.1:0", "--token-file", dir+"/tokens", "--webhook-secret-file", dir+"/secrets"))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); sandbox.CodeOf(err) != sandbox.Invalid ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want an error that says %q", args, err, says)
		}
	}
}
