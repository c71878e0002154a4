package localapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
)

// script is a deployed Worker.
type script struct {
	name       string
	version    string            // 32 hexadecimal digits
	versions   map[string]answer // the answer for each version, by its id as a UUID
	module     string            // the main module's name
	content    []byte
	metadata   metadata
	namespaces map[string]string // ids by class
	tag        string            // of the last migration
	routed     bool
	localURL   string // where it runs on this machine
}

// metadata has the fields of an upload's metadata that matter here.
type metadata struct {
	MainModule         string           `json:"main_module"`
	Bindings           []map[string]any `json:"bindings"`
	Containers         []container      `json:"containers"`
	CompatibilityDate  string           `json:"compatibility_date"`
	CompatibilityFlags []string         `json:"compatibility_flags"`
	KeepBindings       []string         `json:"keep_bindings"`
	Migrations         *struct {
		OldTag string `json:"old_tag"`
		NewTag string `json:"new_tag"`
		Steps  []struct {
			NewSQLiteClasses []string `json:"new_sqlite_classes"`
		} `json:"steps"`
	} `json:"migrations"`
}

// container says that a class of Durable Objects has containers, and which images their starts may name.
type container struct {
	ClassName string            `json:"class_name"`
	Images    map[string]string `json:"images"`
}

func (s *Server) routeWorkers() {
	s.handle("GET /workers/subdomain",
		func(*http.Request, []byte) answer { return ok(map[string]string{"subdomain": Subdomain}) })
	s.handle("GET /workers/scripts", func(*http.Request, []byte) answer { return s.listScripts() })
	s.handle("PUT /workers/scripts/{name}", s.putScript)
	for _, path := range []string{"/workers/scripts/{name}", "/workers/services/{name}"} {
		s.onScript("DELETE "+path, s.deleteScript)
	}
	// Before it deletes a Worker, wrangler looks for the namespaces of its static files.
	s.handle("GET /storage/kv/namespaces", func(*http.Request, []byte) answer { return ok([]any{}) })
	s.onScript("GET /workers/services/{name}", serviceOf)
	s.onScript("GET /workers/workers/{name}", func(w *script, _ *http.Request, _ []byte) answer {
		return ok(map[string]any{
			"id":        w.name,
			"name":      w.name,
			"subdomain": map[string]bool{"enabled": w.routed, "previews_enabled": false},
		})
	})
	s.onScript("GET /workers/scripts/{name}/deployments", deploymentsOf)
	s.onScript("GET /workers/scripts/{name}/versions/{version}", versionOf)
	s.onScript("GET /workers/scripts/{name}/settings", func(w *script, _ *http.Request, _ []byte) answer {
		return ok(map[string]any{
			"bindings":           w.bindings(),
			"compatibility_date": w.metadata.CompatibilityDate,
			"migration_tag":      w.tag,
		})
	})
	s.onScript("GET /workers/scripts/{name}/secrets",
		func(w *script, _ *http.Request, _ []byte) answer { return ok(w.secrets()) })
	s.onScript("PUT /workers/scripts/{name}/secrets", s.putSecret)
	s.onScript("GET /workers/scripts/{name}/content/v2", contentOf)
	s.onScript("GET /workers/scripts/{name}/subdomain",
		func(w *script, _ *http.Request, _ []byte) answer { return routeOf(w) })
	s.onScript("POST /workers/scripts/{name}/subdomain", func(w *script, _ *http.Request, body []byte) answer {
		var wanted struct {
			Enabled bool `json:"enabled"`
		}
		if a := read(body, &wanted); a != nil {
			return *a
		}
		w.routed = wanted.Enabled
		return routeOf(w)
	})
}

// onScript answers requests about an existing Worker.
func (s *Server) onScript(pattern string, answerTo func(*script, *http.Request, []byte) answer) {
	s.handle(pattern, func(r *http.Request, body []byte) answer {
		w, there := s.scripts[r.PathValue("name")]
		switch {
		case there:
			return answerTo(w, r, body)
		case strings.Contains(pattern, "/services/"):
			return failed(http.StatusNotFound, 10090, "workers.api.error.service_not_found")
		default:
			return failed(http.StatusNotFound, 10007, "This Worker does not exist on your account.")
		}
	})
}

func (s *Server) listScripts() answer {
	all := []map[string]string{}
	for _, w := range s.scripts {
		listed := map[string]string{"id": w.name, "migration_tag": w.tag}
		if w.localURL != "" {
			listed["local_url"] = w.localURL // our own field, as in routeOf
		}
		all = append(all, listed)
	}
	return ok(all)
}

func serviceOf(w *script, _ *http.Request, _ []byte) answer {
	return ok(map[string]any{"id": w.name, "default_environment": map[string]any{
		"environment": "production",
		"script":      map[string]any{"id": w.name, "migration_tag": w.tag, "last_deployed_from": "api"},
	}})
}

func deploymentsOf(w *script, _ *http.Request, _ []byte) answer {
	id := asUUID(w.version)
	return ok(map[string]any{"deployments": []map[string]any{{
		"id": id, "source": "api", "strategy": "percentage", "created_on": "2026-11-01T00:00:00Z",
		"versions": []map[string]any{{"version_id": id, "percentage": 100}},
	}}})
}

// versionOf also answers for older versions: Cloudflare keeps them.
func versionOf(w *script, r *http.Request, _ []byte) answer {
	if found, there := w.versions[r.PathValue("version")]; there {
		return found
	}
	return failed(http.StatusNotFound, 100146, "The requested Worker version could not be found.")
}

// renew creates a version of a Worker's current state.
func (w *script) renew() {
	w.version = newID()
	if w.versions == nil {
		w.versions = map[string]answer{}
	}
	w.versions[asUUID(w.version)] = ok(map[string]any{
		"id":       asUUID(w.version),
		"number":   1,
		"metadata": map[string]any{},
		"resources": map[string]any{
			"bindings": w.bindings(),
			"script":   map[string]any{"handlers": []string{"fetch"}},
			"script_runtime": map[string]any{
				"compatibility_date": w.metadata.CompatibilityDate,
				"migration_tag":      w.tag,
				"usage_model":        "standard",
			},
		},
	})
}

// bindings returns a Worker's bindings as the API shows them: without secret values, with the ids of namespaces.
func (w *script) bindings() []map[string]any {
	all := []map[string]any{}
	for _, b := range w.metadata.Bindings {
		shown := map[string]any{}
		for name, value := range b {
			if b["type"] != "secret_text" || name != "text" {
				shown[name] = value
			}
		}
		if class, is := b["class_name"].(string); is {
			shown["namespace_id"] = w.namespaces[class]
		}
		if b["type"] == "d1" {
			shown["database_id"] = b["id"]
		}
		all = append(all, shown)
	}
	return all
}

// secrets returns the secret bindings.
func (w *script) secrets() []map[string]any {
	return slices.DeleteFunc(w.bindings(), func(b map[string]any) bool { return b["type"] != "secret_text" })
}

// putSecret creates a version of a Worker with a changed secret.
func (s *Server) putSecret(w *script, r *http.Request, body []byte) answer {
	var secret map[string]any
	if a := read(body, &secret); a != nil {
		return *a
	}
	w.metadata.Bindings = append(slices.DeleteFunc(w.metadata.Bindings,
		func(b map[string]any) bool { return b["name"] == secret["name"] }), secret)
	w.renew()
	if a := s.run(r, w); a != nil {
		return *a
	}
	return ok(map[string]any{"name": secret["name"], "type": secret["type"]})
}

func contentOf(w *script, _ *http.Request, _ []byte) answer {
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	part, err := form.CreateFormFile(w.module, w.module)
	if err == nil {
		_, err = part.Write(w.content)
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		return failed(http.StatusInternalServerError, 10013, err.Error())
	}
	return answer{raw: b.Bytes(), contentType: form.FormDataContentType()}
}

func routeOf(w *script) answer {
	route := map[string]any{"enabled": w.routed, "previews_enabled": false}
	if w.localURL != "" {
		route["local_url"] = w.localURL // our own field: no host of workers.dev leads here
	}
	return ok(route)
}

func (s *Server) putScript(r *http.Request, body []byte) answer {
	m, content, err := readUpload(r.Header.Get("Content-Type"), body)
	if err != nil {
		return failed(http.StatusBadRequest, 10021, err.Error())
	}
	name := r.PathValue("name")
	w := &script{name: name, namespaces: map[string]string{}}
	switch old := s.scripts[name]; {
	case old != nil:
		*w = *old
	case len(s.scripts) >= MaxWorkers:
		return failed(http.StatusForbidden, codeTooManyWorkers,
			fmt.Sprintf("You have exceeded the limit of %d Workers on your account.", MaxWorkers))
	}
	namespaces, a := w.migrate(m)
	if a != nil {
		return *a
	}
	if a := s.checkBindings(m, namespaces); a != nil {
		return *a
	}
	if a := s.checkImages(r, m); a != nil {
		return *a
	}
	for _, b := range w.metadata.Bindings { // bindings that the upload keeps from the previous version
		kind, _ := b["type"].(string)
		if slices.Contains(m.KeepBindings, kind) &&
			!slices.ContainsFunc(m.Bindings, func(n map[string]any) bool { return n["name"] == b["name"] }) {
			m.Bindings = append(m.Bindings, b)
		}
	}
	w.namespaces, w.metadata, w.content, w.module = namespaces, m, content, m.MainModule
	if m.Migrations != nil {
		w.tag = m.Migrations.NewTag
	}
	w.renew()
	if a := s.run(r, w); a != nil {
		return *a
	}
	s.scripts[name] = w
	return ok(map[string]any{"id": name, "etag": newID(), "deployment_id": w.version, "startup_time_ms": 1})
}

// migrate returns the namespaces after an upload's migrations.
func (w *script) migrate(m metadata) (map[string]string, *answer) {
	all := map[string]string{}
	for class, id := range w.namespaces {
		all[class] = id
	}
	if m.Migrations == nil {
		return all, nil
	}
	if m.Migrations.OldTag != w.tag {
		a := failed(http.StatusPreconditionFailed, 10079,
			fmt.Sprintf("Migration tag precondition failed; current tag is %q, old tag is %q", w.tag, m.Migrations.OldTag))
		return nil, &a
	}
	for _, step := range m.Migrations.Steps {
		for _, class := range step.NewSQLiteClasses {
			if _, there := all[class]; there {
				a := failed(http.StatusBadRequest, 10074,
					"Cannot apply new-class migration to class '"+class+"' that is already depended on by existing Durable Objects")
				return nil, &a
			}
			all[class] = newID()
		}
	}
	return all, nil
}

// checkBindings refuses a Worker with bindings to objects that do not exist.
func (s *Server) checkBindings(m metadata, namespaces map[string]string) *answer {
	refuse := func(code int, format string, args ...any) *answer {
		a := failed(http.StatusBadRequest, code, fmt.Sprintf(format, args...))
		return &a
	}
	for _, b := range m.Bindings {
		text := func(field string) string { v, _ := b[field].(string); return v }
		switch text("type") {
		case "durable_object_namespace":
			if namespaces[text("class_name")] == "" {
				return refuse(10061,
					"Cannot create binding for class '%s' because it is not currently configured to implement Durable Objects",
					text("class_name"))
			}
		case "d1":
			if _, there := s.databases[text("id")]; !there {
				return refuse(10181, "D1 binding '%s' references database '%s' which was not found", text("name"), text("id"))
			}
		case "r2_bucket":
			if _, there := s.buckets[text("bucket_name")]; !there {
				return refuse(10085, "R2 bucket '%s' not found", text("bucket_name"))
			}
		}
	}
	return nil
}

// readUpload splits an upload into its description and its main module.
func readUpload(contentType string, body []byte) (m metadata, content []byte, err error) {
	_, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return m, nil, err
	}
	parts := map[string][]byte{}
	for form := multipart.NewReader(bytes.NewReader(body), parameters["boundary"]); ; {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return m, nil, err
		}
		if parts[part.FormName()], err = io.ReadAll(part); err != nil {
			return m, nil, err
		}
	}
	if err := json.Unmarshal(parts["metadata"], &m); err != nil {
		return m, nil, fmt.Errorf("metadata: %w", err)
	}
	content, there := parts[m.MainModule]
	if !there {
		return m, nil, fmt.Errorf("the main module %q is not among the parts", m.MainModule)
	}
	return m, content, nil
}

// deleteScript deletes a Worker and its Durable Objects. Its container application stays.
func (s *Server) deleteScript(w *script, r *http.Request, _ []byte) answer {
	if a := s.end(r, w); a != nil {
		return *a
	}
	delete(s.scripts, w.name)
	return ok(nil)
}

// namespaceIs reports whether a namespace belongs to a Worker, and whether its Durable Objects have containers.
func (w *script) namespaceIs(id string) (there, hasContainers bool) {
	for class, namespace := range w.namespaces {
		if namespace == id {
			return true, slices.ContainsFunc(w.metadata.Containers, func(c container) bool { return c.ClassName == class })
		}
	}
	return false, false
}

// ownerOf returns the Worker of a namespace, nil if there is none, and whether the namespace has containers.
func (s *Server) ownerOf(namespace string) (w *script, hasContainers bool) {
	for _, w := range s.scripts {
		if there, enabled := w.namespaceIs(namespace); there {
			return w, enabled
		}
	}
	return nil, false
}
