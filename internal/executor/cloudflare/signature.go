package cloudflare

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The form of a signature is described in worker/src/signature.ts, which checks it.
const (
	headerTime      = "X-Sandbox-Time"
	headerContent   = "X-Sandbox-Content"
	headerSignature = "X-Sandbox-Signature"

	// contentChunks is the content of a body that is signed as it is sent.
	contentChunks = "chunks"
	// maxChunk bounds the payload of a chunk, in bytes.
	maxChunk = 64 << 10
)

// signer signs requests with a key that a Worker accepts.
type signer struct {
	keys *keyring
	now  func() time.Time
}

// pinned returns a signer that keeps its key, for a body whose chunks follow on each other.
func (s signer) pinned() signer {
	return signer{&keyring{keys: [][]byte{s.keys.current()}}, s.now}
}

// sign binds a request to method, path, time and content, and returns the signature.
func (s signer) sign(r *http.Request, content string) []byte {
	at := strconv.FormatInt(s.now().UnixMilli(), 10)
	claim := strings.Join([]string{"v1", r.Method, r.URL.RequestURI(), at, content}, "\n")
	signature := s.mac([]byte(claim))
	r.Header.Set(headerTime, at)
	r.Header.Set(headerContent, content)
	r.Header.Set(headerSignature, hex.EncodeToString(signature))
	return signature
}

// signBody is sign for a body that is known.
func (s signer) signBody(r *http.Request, body []byte) {
	sum := sha256.Sum256(body)
	s.sign(r, hex.EncodeToString(sum[:]))
}

func (s signer) mac(parts ...[]byte) []byte {
	h := hmac.New(sha256.New, s.keys.current())
	for _, p := range parts {
		_, _ = h.Write(p) // a hash does not fail
	}
	return h.Sum(nil)
}

// chunkWriter writes a body in signed chunks.
type chunkWriter struct {
	w        io.Writer
	signer   signer
	previous []byte // signature
}

// Write implements io.Writer.
func (c *chunkWriter) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), maxChunk)
		if err := c.chunk(p[:n]); err != nil {
			return written, err
		}
		written, p = written+n, p[n:]
	}
	return written, nil
}

// End marks the end of what is sent.
func (c *chunkWriter) End() error { return c.chunk(nil) }

func (c *chunkWriter) chunk(p []byte) error {
	c.previous = c.signer.mac(c.previous, p)
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(c.previous)+len(p)), uint32(len(p)))
	b = append(append(b, c.previous...), p...)
	_, err := c.w.Write(b)
	return err
}
