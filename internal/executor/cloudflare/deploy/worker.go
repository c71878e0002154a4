package deploy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/cloudflare/cloudflare-go/v7/workers"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// mainModule is the name of the script in an upload.
	mainModule = "worker.js"
	// migrationTag names the state of the Durable Objects' classes: the first one creates the class.
	migrationTag = "v1"
	// resetDelay is how long the deployment of a new script waits before it resets busy Durable Objects.
	resetDelay = 5 * time.Minute
	// maxScript bounds a Worker, in bytes (developers.cloudflare.com/workers/platform/limits, read 2026-11).
	maxScript = 64 << 20
)

// settings are the bindings of a Worker, and its runtime settings.
type settings struct {
	database, bucket, instance, class, compatibilityDate, migrationTag string
	key                                                                bool
}

func (s *inventory) settings() settings {
	return settings{
		database: s.database, bucket: s.name, instance: s.account, class: cloudflare.ClassSandbox,
		compatibilityDate: cloudflare.CompatibilityDate, migrationTag: migrationTag, key: true,
	}
}

// worker is the deployed version of a Worker.
type worker struct {
	settings
	version, namespace      string
	scriptDigest, keyDigest string
	variables               map[string]string
	// policy and images are the scheduling policy and the images that it was uploaded for.
	policy cloudflare.SchedulingPolicy
	images map[string]string
	route
}

// ours reports whether this program deployed the Worker.
func (w *worker) ours() bool { return w.instance != "" || w.class == cloudflare.ClassSandbox }

// findWorker returns nil if there is no Worker.
func (d *Deployer) findWorker(ctx context.Context, name string) (*worker, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	failed := func(what string, err error) error {
		return d.fail(step{what: "Worker " + name + ": " + what, needs: permScripts}, err)
	}
	var p workers.ScriptDeploymentListParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	deployments, err := d.workers.Scripts.Deployments.List(ctx, name, p)
	if isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("list its deployments", err)
	}
	if len(deployments.Deployments) == 0 || len(deployments.Deployments[0].Versions) == 0 {
		return nil, nil
	}
	w, err := d.version(ctx, name, deployments.Deployments[0].Versions[0].VersionID)
	if err != nil {
		return nil, failed("read its version", err)
	}
	if w.scriptDigest, err = d.scriptDigest(ctx, name); err != nil {
		return nil, failed("read its script", err)
	}
	w.route, err = d.routeOf(ctx, name)
	return w, failed("read its route", err)
}

// version reads a version of a Worker: its settings, and the namespace of its Durable Objects.
func (d *Deployer) version(ctx context.Context, name, id string) (*worker, error) {
	var p workers.ScriptVersionGetParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	v, err := d.workers.Scripts.Versions.Get(ctx, name, id, p)
	if err != nil {
		return nil, err
	}
	w := &worker{version: id, policy: cloudflare.PolicyDefault}
	w.variables, w.images = map[string]string{}, map[string]string{}
	w.compatibilityDate, w.migrationTag = v.Resources.ScriptRuntime.CompatibilityDate,
		v.Resources.ScriptRuntime.MigrationTag
	for _, b := range v.Resources.Bindings {
		w.bind(b)
	}
	return w, nil
}

func (w *worker) bind(b workers.ScriptVersionGetResponseResourcesBinding) {
	switch kind := string(b.Type); {
	case b.Name == cloudflare.BindingSandbox && kind == "durable_object_namespace":
		w.class, w.namespace = b.ClassName, b.NamespaceID
	case b.Name == cloudflare.BindingDatabase && kind == "d1":
		w.database = cmp.Or(b.DatabaseID, b.ID) //nolint:staticcheck // the API may still answer with id, the older name
	case b.Name == cloudflare.BindingState && kind == "r2_bucket":
		w.bucket = b.BucketName
	case b.Name == cloudflare.BindingSigningKey && kind == "secret_text":
		w.key = true
	case b.Name == cloudflare.BindingInstance && kind == "plain_text":
		w.instance = b.Text
	case b.Name == cloudflare.BindingKeyDigest && kind == "plain_text":
		w.keyDigest = b.Text
	case b.Name == cloudflare.BindingPolicy && kind == "plain_text":
		w.policy = cloudflare.SchedulingPolicy(b.Text)
	case strings.HasPrefix(b.Name, cloudflare.BindingImages) && kind == "plain_text":
		w.images[strings.TrimPrefix(b.Name, cloudflare.BindingImages)] = b.Text
	case kind == "plain_text":
		w.variables[b.Name] = b.Text
	}
}

// scriptDigest returns the digest of the deployed script.
func (d *Deployer) scriptDigest(ctx context.Context, name string) (string, error) {
	var p workers.ScriptContentGetParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	answer, err := d.workers.Scripts.Content.Get(ctx, name, p)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	script, err := readScript(answer)
	return cloudflare.ScriptDigest(script), err
}

// readScript returns the first module of a Worker: ours have only one.
func readScript(answer *http.Response) ([]byte, error) {
	body := io.LimitReader(answer.Body, maxScript)
	kind, parameters, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(kind, "multipart/") {
		return io.ReadAll(body)
	}
	part, err := multipart.NewReader(body, parameters["boundary"]).NextPart()
	if err != nil {
		return nil, err
	}
	return io.ReadAll(part)
}

// ensureWorker uploads the Worker unless it matches want.
func (d *Deployer) ensureWorker(ctx context.Context, want cloudflare.Deployment, s *inventory) error {
	w := s.worker
	if w != nil && w.settings == s.settings() && w.scriptDigest == cloudflare.ScriptDigest(want.Script) &&
		w.keyDigest == want.KeysDigest() && maps.Equal(w.variables, want.Variables) && w.startsAs(want) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	st := step{what: "Worker " + want.Name + ": upload it", changes: true, needs: permScripts}
	body, contentType, err := upload(want.Script, s.metadata(want))
	if err != nil {
		return d.fail(st, err)
	}
	var answer struct {
		DeploymentID string `json:"deployment_id"`
	}
	err = d.api.send(ctx, http.MethodPut, "/workers/scripts/"+want.Name+"?excludeScript=true&bindings_inherit=strict",
		contentType, body, &answer)
	if err != nil {
		return d.fail(st, err)
	}
	uploaded, err := d.version(ctx, want.Name, asUUID(answer.DeploymentID))
	if isAbsent(err) { // not visible everywhere yet
		return sandbox.Errorf(sandbox.Unavailable,
			"cloudflare: account %s: Worker %s: its new version cannot be read yet: %w", d.account, want.Name, err)
	}
	if err != nil {
		return d.fail(step{what: "Worker " + want.Name + ": read its new version", needs: permScripts}, err)
	}
	if uploaded.namespace == "" {
		return sandbox.Errorf(sandbox.Unavailable,
			"cloudflare: account %s: Worker %s: its Durable Objects have no namespace yet", d.account, want.Name)
	}
	uploaded.scriptDigest = cloudflare.ScriptDigest(want.Script)
	if w != nil {
		uploaded.route = w.route
	}
	s.worker = uploaded
	return nil
}

// asUUID formats 32 hexadecimal digits as a UUID.
func asUUID(id string) string {
	if len(id) != 32 {
		return id
	}
	return id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
}

// metadata is the description of an upload, in Cloudflare's form.
type metadata struct {
	MainModule         string              `json:"main_module"`
	Bindings           []map[string]string `json:"bindings"`
	Containers         []container         `json:"containers"`
	CompatibilityDate  string              `json:"compatibility_date"`
	CompatibilityFlags []string            `json:"compatibility_flags"`
	Migrations         *migrations         `json:"migrations,omitempty"`
	CodeUpdateStrategy updateStrategy      `json:"code_update_strategy"`
}

type migrations struct {
	NewTag string                `json:"new_tag"`
	Steps  []map[string][]string `json:"steps"`
}

type updateStrategy struct {
	Mode     string  `json:"mode"`
	MaxDelay float64 `json:"max_delay"` // in seconds
}

func (s *inventory) metadata(want cloudflare.Deployment) metadata {
	bindings := []map[string]string{
		{"name": cloudflare.BindingInstance, "type": "plain_text", "text": s.account},
		{"name": cloudflare.BindingKeyDigest, "type": "plain_text", "text": want.KeysDigest()},
	}
	bindings = append(bindings, startBindings(want)...)
	for _, name := range slices.Sorted(maps.Keys(want.Variables)) {
		bindings = append(bindings, map[string]string{"name": name, "type": "plain_text", "text": want.Variables[name]})
	}
	bindings = append(bindings,
		map[string]string{
			"name":       cloudflare.BindingSandbox,
			"type":       "durable_object_namespace",
			"class_name": cloudflare.ClassSandbox,
		},
		map[string]string{"name": cloudflare.BindingState, "type": "r2_bucket", "bucket_name": want.Name},
		map[string]string{"name": cloudflare.BindingDatabase, "type": "d1", "id": s.database},
		map[string]string{"name": cloudflare.BindingSigningKey, "type": "secret_text", "text": string(want.SigningKey)})
	if want.OlderKey != "" {
		bindings = append(bindings,
			map[string]string{"name": cloudflare.BindingOlderKey, "type": "secret_text", "text": string(want.OlderKey)})
	}
	m := metadata{
		MainModule:         mainModule,
		Bindings:           bindings,
		CompatibilityDate:  cloudflare.CompatibilityDate,
		CompatibilityFlags: []string{},
		Containers:         []container{{want.Name, cloudflare.ClassSandbox, want.Images}},
		CodeUpdateStrategy: updateStrategy{"deferred", resetDelay.Seconds()},
	}
	if s.worker == nil || s.worker.migrationTag != migrationTag {
		m.Migrations = &migrations{migrationTag, []map[string][]string{{"new_sqlite_classes": {cloudflare.ClassSandbox}}}}
	}
	return m
}

// upload returns the body of an upload, and its content type.
func upload(script []byte, m metadata) (body []byte, contentType string, err error) {
	described, err := json.Marshal(m)
	if err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	module := textproto.MIMEHeader{
		"Content-Disposition": {fmt.Sprintf(`form-data; name="%s"; filename="%s"`, mainModule, mainModule)},
		"Content-Type":        {"application/javascript+module"},
	}
	if err := form.WriteField("metadata", string(described)); err != nil {
		return nil, "", err
	}
	part, err := form.CreatePart(module)
	if err != nil {
		return nil, "", err
	}
	if _, err := part.Write(script); err != nil {
		return nil, "", err
	}
	err = form.Close()
	return b.Bytes(), form.FormDataContentType(), err
}

// removeWorker removes the Worker with its Durable Objects.
func (d *Deployer) removeWorker(ctx context.Context, s *inventory) error {
	if s.worker == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	var p workers.ScriptDeleteParams
	p.AccountID.Value, p.AccountID.Present = d.account, true
	p.Force.Value, p.Force.Present = true, true
	_, err := d.workers.Scripts.Delete(ctx, s.name, p)
	return d.fail(step{what: "Worker " + s.name + ": delete it", changes: true, needs: permScripts}, err)
}
