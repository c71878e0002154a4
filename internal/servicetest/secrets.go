package servicetest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var secretTests = []test{
	{"SecretsReachASandboxBeforeItIsUsed", secretsReachASandbox},
	{"SecretsAreNeverShown", secretsAreNeverShown},
	{"SecretsThatChangeReachLivingSandboxes", changedSecretsReachLivingSandboxes},
	{"SecretsAreThereAgainAfterAStop", secretsSurviveAStop},
	{"SecretsAreNotInWarmPools", secretsAreNotInPools},
	{"SecretsNameWrongFields", secretsNameWrongFields},
	{"SecretsEndWithTheirEnvironment", secretsEndWithTheirEnvironment},
}

type secrets = map[string]sandbox.Secret

// with sets secrets of an environment: values for new or changed ones, names for the others.
func with(values secrets, names ...string) func(p *sandbox.PutEnvironment) {
	return func(p *sandbox.PutEnvironment) { p.SecretValues, p.Secrets = values, names }
}

func stops(p *sandbox.PutEnvironment) { p.SleepMode = sandbox.SleepStop }

// wantSecrets checks a sandbox's secrets.
func (w *world) wantSecrets(sandboxID string, want secrets) {
	w.Helper()
	if got := w.Secrets(sandboxID); !maps.Equal(got, want) {
		w.Errorf("the sandbox has the secrets %q, want %q", plain(got), plain(want))
	}
}

func plain(s secrets) map[string]string {
	shown := map[string]string{}
	for name, value := range s {
		shown[name] = string(value)
	}
	return shown
}

func secretsReachASandbox(w *world) {
	want := secrets{"token": "hunter2", "ca.pem": "-----BEGIN\nCERTIFICATE\x00\xc3\xa9"}
	e := w.environment(with(want))
	if !slices.Equal(e.EnvironmentSpec.Secrets, []string{"ca.pem", "token"}) {
		w.Errorf("the environment names the secrets %q", e.EnvironmentSpec.Secrets)
	}
	w.wantSecrets(w.acquire(ann).SandboxID, want)
}

func secretsAreNeverShown(w *world) {
	const value = "hunter2-never-shown"
	put := w.environment(with(secrets{"token": value}))
	w.acquire(ann)
	w.Advance(time.Minute)
	for _, answer := range []any{
		put, must(w.Service.GetEnvironment(w.Context(), game))(w), must(w.Service.ListEnvironments(w.Context()))(w),
		w.lease(ann), must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{EnvironmentID: game}))(w),
	} {
		text := must(json.Marshal(answer))(w)
		if strings.Contains(string(text), value) {
			w.Errorf("the value is in %s", text)
		}
	}
}

func changedSecretsReachLivingSandboxes(w *world) {
	w.environment(with(secrets{"a": "1", "b": "2"}))
	id := w.acquire(ann).SandboxID
	w.environment(with(secrets{"b": "changed", "c": "3"}))
	w.exec(sandbox.ExecRequest{Command: []string{"echo"}}) // the next use delivers them, without a loop
	w.wantSecrets(id, secrets{"b": "changed", "c": "3"})
	w.environment(with(nil, "c"))
	w.Advance(time.Second)
	w.wantSecrets(id, secrets{"c": "3"})
	w.environment()
	w.Advance(time.Second)
	w.wantSecrets(id, secrets{})
}

func secretsSurviveAStop(w *world) {
	w.environment(stops, with(secrets{"token": "hunter2"}))
	l := w.acquire(ann)
	must(w.Service.Sleep(w.Context(), sandbox.LeaseRef{ID: l.ID}))(w)
	w.wantSecrets(l.SandboxID, nil)
	w.environment(stops, with(secrets{"token": "hunter3"}))
	w.Advance(time.Second)
	w.wantSecrets(l.SandboxID, nil) // a changed secret wakes no sandbox
	must(w.Service.Wake(w.Context(), sandbox.LeaseRef{ID: l.ID}))(w)
	w.wantSecrets(l.SandboxID, secrets{"token": "hunter3"})
}

func secretsAreNotInPools(w *world) {
	want := secrets{"token": "hunter2"}
	w.environment(stops, with(want), func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: 1} })
	w.Advance(time.Minute)
	if w.Running() != 1 {
		w.Fatalf("%d sandboxes wait in the pool, want 1", w.Running())
	}
	l := w.acquire(ann)
	if w.Running() != 1 {
		w.Fatalf("the sandbox is not the pool's")
	}
	w.wantSecrets(l.SandboxID, want)
	w.Advance(time.Minute)
	if w.Running() != 2 {
		w.Fatalf("the pool is not filled again")
	}
}

func secretsNameWrongFields(w *world) {
	for field, change := range map[string]func(p *sandbox.PutEnvironment){
		"secret_values.token": with(nil, "token"), // it never had a value
		"secrets":             with(secrets{"../token": "hunter2"}),
		"secret_values.empty": with(secrets{"empty": ""}),
		"secret_values.large": with(secrets{"large": sandbox.Secret(strings.Repeat("x", sandbox.MaxSecretBytes+1))}),
	} {
		p := sandbox.PutEnvironment{
			ID:              game,
			Owner:           owner,
			EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player", Network: sandbox.NetworkNone},
		}
		change(&p)
		_, err := w.Service.PutEnvironment(w.Context(), p)
		w.wantError(err, sandbox.Invalid, "", field)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			w.Errorf("the error contains the value: %v", err)
		}
	}
	if _, err := w.Service.GetEnvironment(w.Context(), game); sandbox.CodeOf(err) != sandbox.NotFound {
		w.Errorf("the refused environment was created: %v", err)
	}
}

func secretsEndWithTheirEnvironment(w *world) {
	w.environment(with(secrets{"token": "hunter2"}))
	if err := w.Service.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game}); err != nil {
		w.Fatal(err)
	}
	_, err := w.Service.PutEnvironment(w.Context(), sandbox.PutEnvironment{ID: game, Owner: owner,
		EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player", Network: sandbox.NetworkNone, Secrets: []string{"token"}}})
	w.wantError(err, sandbox.Invalid, "", "secret_values.token")
}
