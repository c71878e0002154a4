package localapi

import (
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// RegistryDomain is the registry of every account. Here it is at the API's own address.
const RegistryDomain = "registry.cloudflare.com"

// registryUser is the name that all credentials are for.
const registryUser = "v1"

// images is the account's registry. It accepts only short-lived credentials, and only repositories that begin with the
// account's id.
type images struct {
	handler http.Handler
	now     func() time.Time

	mu       sync.Mutex                 // guards what follows
	granted  map[string]grant           // by password
	uploaded map[string]map[string]bool // digests by repository
}

type grant struct {
	account string
	push    bool
	until   time.Time
}

func newImages(now func() time.Time) *images {
	return &images{
		handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), now: now,
		granted: map[string]grant{}, uploaded: map[string]map[string]bool{},
	}
}

func (s *Server) routeRegistry() {
	s.handle("POST /containers/registries/{domain}/credentials", func(r *http.Request, body []byte) answer {
		var asked struct {
			Minutes     int      `json:"expiration_minutes"`
			Permissions []string `json:"permissions"`
		}
		if refused := read(body, &asked); refused != nil {
			return *refused
		}
		known := !slices.ContainsFunc(asked.Permissions, func(p string) bool { return p != "push" && p != "pull" })
		switch domain := r.PathValue("domain"); {
		case domain != RegistryDomain && domain != r.Host:
			return failed(http.StatusNotFound, 1000, "IMAGE_REGISTRY_NOT_CONFIGURED")
		case asked.Minutes < 1 || len(asked.Permissions) == 0 || !known:
			return failed(http.StatusBadRequest, 1000, "VALIDATE_INPUT: expiration_minutes and permissions must be set")
		}
		account := r.PathValue("account")
		password := s.images.grant(account, slices.Contains(asked.Permissions, "push"),
			time.Duration(asked.Minutes)*time.Minute)
		return answer{status: http.StatusCreated, result: map[string]string{
			"account_id": account, "registry_host": r.Host, "username": registryUser, "password": password,
		}}
	})
}

func (i *images) grant(account string, push bool, hold time.Duration) (password string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	password = newID()
	i.granted[password] = grant{account, push, i.now().Add(hold)}
	return password
}

// Credentials returns temporary credentials that can read an account's images, like those of Cloudflare's own machines.
func (s *Server) Credentials(account string, hold time.Duration) (username, password string) {
	return registryUser, s.images.grant(account, false, hold)
}

// RevokeCredentials invalidates all credentials that were granted so far, as if they had expired.
func (s *Server) RevokeCredentials() {
	s.images.mu.Lock()
	defer s.images.mu.Unlock()
	clear(s.images.granted)
}

// serveRegistry answers requests to the registry, with the same faults as the API.
func (s *Server) serveRegistry(w http.ResponseWriter, r *http.Request) {
	fault := None
	if s.cfg.Fault != nil {
		s.mu.Lock()
		fault = s.cfg.Fault(r)
		s.mu.Unlock()
	}
	switch fault {
	case Down:
		refuse(w, http.StatusServiceUnavailable, "UNAVAILABLE", "try again later")
	case Lost:
		s.images.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	default:
		s.images.ServeHTTP(w, r)
	}
}

// ServeHTTP implements http.Handler.
func (i *images) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, password, _ := r.BasicAuth()
	i.mu.Lock()
	g, granted := i.granted[password]
	i.mu.Unlock()
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	own := r.URL.Path == "/v2/" || r.URL.Path == "/v2/gc/layers" || strings.HasPrefix(r.URL.Path, "/v2/"+g.account+"/")
	switch {
	case !granted || !g.until.After(i.now()):
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "credentials are needed")
	case !own || (!reads && !g.push):
		refuse(w, http.StatusForbidden, "DENIED", "these credentials do not allow it")
	case r.URL.Path == "/v2/gc/layers" && r.Method == http.MethodPut:
		i.collect()
		w.WriteHeader(http.StatusOK)
	default:
		i.handler.ServeHTTP(w, r)
		i.keep(r, w.Header().Get("Docker-Content-Digest"))
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The caller may have gone.
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}

// keep records the digest of an image that was pushed to a repository.
func (i *images) keep(r *http.Request, digest string) {
	repository, _, manifest := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/")
	if !manifest || r.Method != http.MethodPut || digest == "" {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.uploaded[repository] == nil {
		i.uploaded[repository] = map[string]bool{}
	}
	i.uploaded[repository][digest] = true
}

// collect removes the images that no tag points to.
func (i *images) collect() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for repository, digests := range i.uploaded {
		named := map[string]bool{}
		for _, tag := range i.tags(repository) {
			named[i.ask(http.MethodHead, "/v2/"+repository+"/manifests/"+tag).Header().Get("Docker-Content-Digest")] = true
		}
		for digest := range digests {
			if !named[digest] {
				i.ask(http.MethodDelete, "/v2/"+repository+"/manifests/"+digest)
				delete(digests, digest)
			}
		}
	}
}

// ask sends a request to the registry, bypassing all permissions.
func (i *images) ask(method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	i.handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func (i *images) tags(repository string) []string {
	var list struct{ Tags []string }
	if json.Unmarshal(i.ask(http.MethodGet, "/v2/"+repository+"/tags/list").Body.Bytes(), &list) != nil {
		return nil // the repository has no tags
	}
	return list.Tags
}

// Images returns the images of the account's registry as repository:tag, and untagged ones as repository@digest.
func (s *Server) Images() (all []string) {
	i := s.images
	i.mu.Lock()
	defer i.mu.Unlock()
	for repository, digests := range i.uploaded {
		left := maps.Clone(digests)
		for _, tag := range i.tags(repository) {
			all = append(all, repository+":"+tag)
			delete(left, i.ask(http.MethodHead, "/v2/"+repository+"/manifests/"+tag).Header().Get("Docker-Content-Digest"))
		}
		for digest := range left {
			if i.ask(http.MethodHead, "/v2/"+repository+"/manifests/"+digest).Code == http.StatusOK {
				all = append(all, repository+"@"+digest)
			}
		}
	}
	slices.Sort(all)
	return all
}
