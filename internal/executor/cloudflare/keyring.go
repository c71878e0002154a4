package cloudflare

import (
	"bytes"
	"strings"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// keyring holds the keys that one deployment may accept. While keys are rotated a Worker accepts two:
//
//	key file     a Worker that was applied before    after its next apply
//	old          old                                 old
//	new, old     old: the keyring signs with old     new and old: it signs with new
//	new          new and old: it signs with new      new
//
// The client signs a refused request again with the next key: a refused request had no effect.
type keyring struct {
	mu   sync.Mutex // guards what follows
	keys [][]byte   // newest first
	at   int        // the index of the signing key
}

func newKeyring(keys []sandbox.Secret) *keyring {
	r := &keyring{}
	r.set(keys)
	return r
}

// set replaces the keys. The signing key stays the same if it is among them.
func (r *keyring) set(keys []sandbox.Secret) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var current []byte
	if r.at < len(r.keys) {
		current = r.keys[r.at]
	}
	r.keys, r.at = nil, 0
	for i, k := range keys {
		r.keys = append(r.keys, []byte(k))
		if current != nil && bytes.Equal(current, r.keys[i]) {
			r.at = i
		}
	}
}

// current returns the signing key.
func (r *keyring) current() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys[r.at]
}

// size returns the number of keys.
func (r *keyring) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.keys)
}

// refused makes the next key the signing key, unless another request already has.
func (r *keyring) refused(key []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes.Equal(r.keys[r.at], key) {
		r.at = (r.at + 1) % len(r.keys)
	}
}

// prefer makes the newest key that a deployment accepts the signing key. digests has the form of KeysDigest.
func (r *keyring) prefer(digests string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, k := range r.keys {
		for _, accepted := range strings.Split(digests, ",") {
			if KeyDigest(sandbox.Secret(k)) == accepted {
				r.at = i
				return
			}
		}
	}
}
