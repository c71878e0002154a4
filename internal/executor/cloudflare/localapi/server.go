// Package localapi is the part of Cloudflare's API that deployments need, on the local machine. It answers like
// recordings of wrangler's traffic, keeps its state in memory, and runs deployed Workers in a Runtime. It refuses what
// Cloudflare refuses if that matters to a deployment:
//
//   - Durable Objects come with a migration, once; a namespace ends with its Worker;
//   - a container application belongs to one namespace forever, a namespace to one application, and it outlives
//     its Worker;
//   - a Worker is bound to databases and buckets that exist, and a bucket that has something in it stays;
//   - a secret is never given back;
//   - analytics report the usage of container applications that they were given;
//   - the account's registry, which is at the API's own address, takes short-lived credentials only;
//   - 1,200 calls, or 320 queries, in five minutes block a token for the next five;
//   - an account has at most 500 Workers;
//   - the scheduling policy of an application never changes, and one of policy durable_object has no image, size,
//     number of instances or rollouts: starts choose among at most 100 images of the registry, which come with the
//     Worker;
//   - sizes, and what all instances of an application have together, are within Cloudflare's limits.
//
// It does not prove anything about Cloudflare's other behavior: other quotas, how long a change takes to be visible
// everywhere, and how a rollout works.
package localapi

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxBody bounds a request, in bytes.
const maxBody = 64 << 20

// Subdomain is the account's workers.dev subdomain.
const Subdomain = "local"

// Fault is a way in which a request fails.
type Fault int

// The faults.
const (
	// None means that the request is answered.
	None Fault = iota
	// Down means that the request is refused with 503, and changes nothing.
	Down
	// Lost means that the request is carried out, and the connection breaks before the answer.
	Lost
)

// Config configures a server. Its zero value answers every caller, for any account.
type Config struct {
	// Token is the token that requests must have; "" means any.
	Token string
	// Fault is called before every request, one at a time; nil means None.
	Fault func(*http.Request) Fault
	// Runtime runs the Workers; nil means that they do not run and have no address.
	Runtime Runtime
	// Now returns the time; nil means time.Now.
	Now func() time.Time
}

// Server is the API of one account, and its registry. It is an http.Handler, for URLs that begin with /client/v4 and
// /v2.
type Server struct {
	cfg Config
	mux *http.ServeMux

	mu           sync.Mutex // guards everything that follows
	lacking      map[string]bool
	scripts      map[string]*script
	applications map[string]*application
	databases    map[string]string            // names by id
	buckets      map[string]map[string][]byte // objects by bucket and key
	counted      map[string][]Counted         // usage by name of application
	quotas       map[budget]*quota
	prepared     map[string]bool // images that were prepared for starts

	images *images
}

// New returns a server of an empty account.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{
		cfg:          cfg,
		mux:          http.NewServeMux(),
		lacking:      map[string]bool{},
		scripts:      map[string]*script{},
		applications: map[string]*application{},
		databases:    map[string]string{},
		buckets:      map[string]map[string][]byte{},
		counted:      map[string][]Counted{},
		quotas:       map[budget]*quota{},
		prepared:     map[string]bool{},
	}
	s.images = newImages(cfg.Now)
	s.routeWorkers()
	s.routeContainers()
	s.routeRegistry()
	s.routeStorage()
	s.routeAnalytics()
	return s
}

// Lacks removes a permission from the token: one of workers, containers, d1, r2 and analytics.
func (s *Server) Lacks(service string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacking[service] = true
}

// answer is the answer to a request: a result or a failure.
type answer struct {
	status int
	result any
	failed *failure
	// info is the envelope's result_info, of lists that come in pages.
	info any
	// raw replaces the envelope, with contentType as its type.
	raw         []byte
	contentType string
}

type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func ok(result any) answer { return answer{status: http.StatusOK, result: result} }

func failed(status, code int, message string) answer {
	return answer{status: status, failed: &failure{code, message}}
}

// handle answers a request of an account under the lock.
func (s *Server) handle(pattern string, answerTo func(*http.Request, []byte) answer) {
	method, path, _ := strings.Cut(pattern, " ")
	service, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	s.mux.HandleFunc(method+" /client/v4/accounts/{account}"+path, s.locked(service, answerTo))
}

// locked answers a request of a service under the lock.
func (s *Server) locked(service string, answerTo func(*http.Request, []byte) answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			write(w, failed(http.StatusBadRequest, 10001, "the request cannot be read"))
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		fault := None
		if s.cfg.Fault != nil {
			fault = s.cfg.Fault(r)
		}
		switch {
		case fault == Down:
			write(w, failed(http.StatusServiceUnavailable, 10013, "An unknown error has occurred."))
		case s.lacking[service] && service == "analytics":
			write(w, graphQL(nil, "authz", "not authorized for that account"))
		case s.lacking[service]:
			write(w, failed(http.StatusForbidden, 10000, "Authentication error"))
		default:
			a := answerTo(r, body)
			if fault == Lost {
				panic(http.ErrAbortHandler)
			}
			write(w, a)
		}
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/v2/") {
		s.serveRegistry(w, r)
		return
	}
	token, bears := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bears || (s.cfg.Token != "" && token != s.cfg.Token) {
		write(w, failed(http.StatusUnauthorized, 1000, "Invalid API Token"))
		return
	}
	if s.throttle(w, r, token) {
		return
	}
	s.mux.ServeHTTP(w, r)
}

func write(w http.ResponseWriter, a answer) {
	if a.raw != nil {
		w.Header().Set("Content-Type", a.contentType)
		_, _ = w.Write(a.raw) // the caller may have gone
		return
	}
	envelope := map[string]any{
		"success":  a.failed == nil,
		"errors":   []failure{},
		"messages": []string{},
		"result":   a.result,
	}
	if a.failed != nil {
		envelope["errors"] = []failure{*a.failed}
	}
	if a.info != nil {
		envelope["result_info"] = a.info
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(envelope) // the caller may have gone
}

// read decodes a body. It returns an answer if it cannot.
func read(body []byte, into any) *answer {
	if err := json.Unmarshal(body, into); err != nil {
		a := failed(http.StatusBadRequest, 10002, "the body is not the JSON that is expected: "+err.Error())
		return &a
	}
	return nil
}

// newID returns 32 hexadecimal digits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// newUUID returns an id as a UUID.
func newUUID() string { return asUUID(newID()) }

func asUUID(id string) string {
	return id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
}

// Holding counts objects by kind, and omits kinds without objects.
func (s *Server) Holding() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]int{
		"workers":      len(s.scripts),
		"applications": len(s.applications),
		"databases":    len(s.databases),
		"buckets":      len(s.buckets),
		"images":       len(s.Images()),
	}
	for kind, n := range all {
		if n == 0 {
			delete(all, kind)
		}
	}
	return all
}
