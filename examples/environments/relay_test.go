package environments_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/golang-jwt/jwt/v5"
)

// relay is a fake relay of AT Protocol: a firehose over WebSocket, and the repositories for new records. It refuses
// requests that the DID has not signed.
type relay struct {
	url, host, did string

	mu          sync.Mutex // guards the fields below
	keys        map[string]*ecdsa.PublicKey
	subscribers map[*websocket.Conn]subscription
	records     []created
}

// subscription is the request of a subscriber.
type subscription struct {
	Type        string   `json:"type"`
	Collections []string `json:"collections"`
	DIDs        []string `json:"dids"`
	// agent is the identity of the subscriber.
	agent string
}

// created is a posted record.
type created struct {
	Repo       string `json:"repo"`
	Collection string `json:"collection"`
	Key        string `json:"rkey"`
	Record     struct {
		Type        string          `json:"$type"`
		Environment string          `json:"environment"`
		Turn        int             `json:"turn"`
		Action      json.RawMessage `json:"action"`
		CreatedAt   time.Time       `json:"createdAt"`
	} `json:"record"`
}

func startRelay(t *testing.T, o outside) *relay {
	t.Helper()
	r := &relay{
		did:         "did:web:relay.test",
		keys:        make(map[string]*ecdsa.PublicKey),
		subscribers: make(map[*websocket.Conn]subscription),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /relay/firehose", r.firehose)
	mux.HandleFunc("POST /xrpc/com.atproto.repo.createRecord", r.create)
	r.url, r.host = o.serve(t, "relay.test", mux)
	return r
}

// register generates a key for a DID, and returns it in PEM.
func (r *relay) register(t *testing.T, did string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys[did] = &key.PublicKey
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// caller returns the DID that signed a request for a method.
func (r *relay) caller(req *http.Request, method string) (string, error) {
	var claims struct {
		jwt.RegisteredClaims
		Method string `json:"lxm"`
	}
	bearer, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	_, err := jwt.ParseWithClaims(bearer, &claims, func(*jwt.Token) (any, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if key := r.keys[claims.Issuer]; key != nil {
			return key, nil
		}
		return nil, fmt.Errorf("%q is nobody", claims.Issuer)
	}, jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience(r.did), jwt.WithExpirationRequired(),
		jwt.WithLeeway(10*time.Second))
	if err == nil && claims.Method != method {
		err = fmt.Errorf("the token is for %q", claims.Method)
	}
	return claims.Issuer, err
}

func (r *relay) firehose(w http.ResponseWriter, req *http.Request) {
	agent, err := r.caller(req, "network.agent.relay.subscribe")
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	conn, err := websocket.Accept(w, req, nil)
	if err != nil {
		return // Accept has sent the error
	}
	defer func() { _ = conn.CloseNow() }() // nothing more to send
	for {
		s := subscription{agent: agent}
		if err := wsjson.Read(req.Context(), conn, &s); err != nil {
			break
		}
		answer := map[string]any{"type": "subscribed", "collections": s.Collections, "dids": s.DIDs}
		if s.Type != "subscribe" || !slices.Equal(s.DIDs, []string{agent}) {
			answer = map[string]any{"type": "error", "error": "an agent subscribes to what is its own"}
		} else {
			r.subscribe(conn, &s)
		}
		if err := wsjson.Write(req.Context(), conn, answer); err != nil {
			break
		}
	}
	r.subscribe(conn, nil)
}

func (r *relay) subscribe(conn *websocket.Conn, s *subscription) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.subscribers, conn)
	if s != nil {
		r.subscribers[conn] = *s
	}
}

// tell sends an event of a collection to its subscribers. It ignores disconnected ones.
func (r *relay) tell(t *testing.T, did, collection string, record map[string]any) {
	t.Helper()
	record["$type"] = collection
	for _, conn := range r.listening(did, collection) {
		if err := wsjson.Write(t.Context(), conn,
			map[string]any{"did": did, "collection": collection, "record": record}); err != nil {
			t.Logf("%s does not receive %s: %v", did, collection, err)
		}
	}
}

// listening returns the connections that have subscribed to an agent's events of a collection.
func (r *relay) listening(did, collection string) (all []*websocket.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn, s := range r.subscribers {
		wanted := slices.ContainsFunc(s.Collections, func(pattern string) bool {
			match, err := path.Match(pattern, collection)
			return match && err == nil
		})
		if wanted && slices.Contains(s.DIDs, did) {
			all = append(all, conn)
		}
	}
	return all
}

// cut closes every connection of the firehose.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.subscribers {
		_ = conn.CloseNow() // cut without a close handshake
	}
	clear(r.subscribers)
}

func (r *relay) create(w http.ResponseWriter, req *http.Request) {
	agent, err := r.caller(req, "com.atproto.repo.createRecord")
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var c created
	if err := json.NewDecoder(req.Body).Decode(&c); err != nil || c.Repo != agent {
		http.Error(w, errors.Join(errors.New("an agent creates records in its own repository"), err).Error(),
			http.StatusForbidden)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.records,
		func(is created) bool { return is.Repo == c.Repo && is.Collection == c.Collection && is.Key == c.Key }) {
		http.Error(w, "the record is there", http.StatusConflict)
		return
	}
	r.records = append(r.records, c)
	w.Header().Set("Content-Type", "application/json")
	// The sandbox may be gone.
	_ = json.NewEncoder(w).Encode(map[string]string{"uri": "at://" + c.Repo + "/" + c.Collection + "/" + c.Key})
}

// posted returns the records of an agent.
func (r *relay) posted(did string) []created {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.records), func(c created) bool { return c.Repo != did })
}
