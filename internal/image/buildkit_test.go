package image_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// byBuildKit returns a spec whose Dockerfile runs a command that no other test's cache has.
func byBuildKit(t *testing.T, run string) image.Spec {
	t.Helper()
	spec, name := unique(t)
	spec.BuildKit = true
	spec.Inline = "FROM " + dockertest.Busybox(t) + "\nLABEL test=" + name + "\nCOPY id.txt /\nRUN " + run + "\n"
	return spec
}

func TestBuildKitGivesSecretsToOneStep(t *testing.T) {
	t.Parallel()
	b := builder(t, engine(t))
	spec := byBuildKit(t, `--mount=type=secret,id=token test "$(cat /run/secrets/token)" = hunter2 && echo the secret was right`)
	spec.Secrets = map[string]sandbox.Secret{"token": "hunter2"}
	var log []string
	id, err := b.Build(t.Context(), spec, mustHash(t, spec), func(line string) { log = append(log, line) })
	must(t, err)
	t.Cleanup(func() { must(t, b.Delete(context.WithoutCancel(t.Context()), id)) })
	text := strings.Join(log, "\n")
	if !strings.Contains(text, "the secret was right") || !strings.Contains(text, "COPY id.txt /") {
		t.Errorf("the log is\n%s", text)
	}
	img, err := b.Inspect(t.Context(), id)
	must(t, err)
	if img.ContextHash != mustHash(t, spec) {
		t.Errorf("got %+v", img)
	}

	spec.Secrets, spec.NoCache = nil, true
	_, err = b.Build(t.Context(), spec, mustHash(t, spec), nil)
	if sandbox.CodeOf(err) != sandbox.Failed || !strings.Contains(err.Error(), "hunter2 &&") {
		t.Errorf("without its secret: %v", err)
	}
}

func TestBuildKitFailureShowsTheEndOfItsLog(t *testing.T) {
	t.Parallel()
	b := builder(t, engine(t))
	spec := byBuildKit(t, `for i in $(seq 1 60); do echo line $i; done; exit 7`)
	_, err := b.Build(t.Context(), spec, mustHash(t, spec), nil)
	if sandbox.CodeOf(err) != sandbox.Failed {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"line 60", "exit code: 7", "last 40 lines"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "line 5\n") {
		t.Errorf("the error holds the whole log")
	}
}

func TestBuildKitRefusesAChangedContext(t *testing.T) {
	t.Parallel()
	b := builder(t, engine(t))
	spec := byBuildKit(t, "true")
	planned := mustHash(t, spec)
	write(t, spec.Context+"/main.txt", "changed after the plan")
	_, err := b.Build(t.Context(), spec, planned, nil)
	if sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "changed after it was planned") {
		t.Errorf("got %v", err)
	}
}

// A build whose caller has gone is stopped, and not waited for.
func TestStoppedBuildKitBuild(t *testing.T) {
	t.Parallel()
	b := builder(t, engine(t))
	spec := byBuildKit(t, "echo it runs; sleep 1000")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, err := b.Build(ctx, spec, mustHash(t, spec), func(line string) {
		if line == "it runs" {
			stop()
		}
	})
	if sandbox.CodeOf(err) != sandbox.Timeout || strings.Contains(err.Error(), "stop build") {
		t.Errorf("got %v", err)
	}
}
