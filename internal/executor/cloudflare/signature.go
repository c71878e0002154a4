package cloudflare

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of a signature. worker/src/signature.ts describes and checks it.
const (
	headerTime      = "X-Sandbox-Time"
	headerContent   = "X-Sandbox-Content"
	headerSignature = "X-Sandbox-Signature"
)

// signer signs requests with a key that a Worker accepts.
type signer struct {
	keys *keyring
	now  func() time.Time
}

// sign binds a request to method, path, time and content.
func (s signer) sign(r *http.Request, content string) {
	at := strconv.FormatInt(s.now().UnixMilli(), 10)
	claim := strings.Join([]string{"v1", r.Method, r.URL.RequestURI(), at, content}, "\n")
	h := hmac.New(sha256.New, s.keys.current())
	_, _ = h.Write([]byte(claim)) // a hash does not fail
	r.Header.Set(headerTime, at)
	r.Header.Set(headerContent, content)
	r.Header.Set(headerSignature, hex.EncodeToString(h.Sum(nil)))
}

// signBody signs a request with this body.
func (s signer) signBody(r *http.Request, body []byte) {
	sum := sha256.Sum256(body)
	s.sign(r, hex.EncodeToString(sum[:]))
}
