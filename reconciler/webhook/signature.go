package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The headers of a signed message.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp" // Unix seconds
	HeaderSignature = "Webhook-Signature" // space-separated "v1,<base64>"
)

// Tolerance is how far the timestamp of a message may be in the past or in the future.
const Tolerance = 5 * time.Minute

// Sizes of a secret's key in bytes, from the Standard Webhooks specification.
const (
	minKey = 24
	maxKey = 64
)

const (
	secretPrefix  = "whsec_"
	maxIDLength   = 256
	maxSignatures = 32 // per message; limits the work of an unauthenticated request
)

// Secret is one signing key. It never appears in text, JSON or logs.
type Secret struct {
	key []byte
	id  string // hash of the key
	// Since is when it was created; zero means unknown.
	Since time.Time
	// NotAfter is when it expires; zero means never.
	NotAfter time.Time
}

// NewSecret returns a new secret in text form: "whsec_" and 32 random bytes in base64.
func NewSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails since Go 1.24
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// ParseSecret parses the text form of a secret. Errors: Invalid; they do not quote the text.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return Secret{}, sandbox.Errorf(sandbox.Invalid, "a webhook secret must start with %q", secretPrefix)
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return Secret{}, sandbox.Errorf(sandbox.Invalid, "a webhook secret must be %q and base64: this one is not base64",
			secretPrefix)
	}
	if len(key) < minKey || len(key) > maxKey {
		return Secret{}, sandbox.Errorf(sandbox.Invalid,
			"a webhook secret must have %d to %d random bytes, but this one has %d: generate one with `openssl rand -base64 32`",
			minKey, maxKey, len(key))
	}
	sum := sha256.Sum256(append([]byte("webhook secret "), key...))
	return Secret{key: key, id: hex.EncodeToString(sum[:4])}, nil
}

// ID names the secret in logs and events. It is a hash of 256 random bits, so it reveals nothing.
func (s Secret) ID() string { return s.id }

// Source names the secret as the origin of a delivery: "secret:<id>".
func (s Secret) Source() string { return "secret:" + s.ID() }

// Ended reports whether the secret has expired.
func (s Secret) Ended(now time.Time) bool { return !s.NotAfter.IsZero() && now.After(s.NotAfter) }

func (Secret) String() string { return "webhook secret (hidden)" }

// GoString implements fmt.GoStringer.
func (s Secret) GoString() string { return s.String() }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

func (s Secret) mac(id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// Sign sets the headers of a message with a timestamp. Errors: Invalid.
func (s Secret) Sign(h http.Header, id string, at time.Time, body []byte) error {
	if err := CheckID(id); err != nil {
		return err
	}
	if len(s.key) < minKey {
		return sandbox.Errorf(sandbox.Invalid, "signing message %s: the webhook secret is empty", id)
	}
	timestamp := strconv.FormatInt(at.Unix(), 10)
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, timestamp)
	h.Set(HeaderSignature, "v1,"+base64.StdEncoding.EncodeToString(s.mac(id, timestamp, body)))
	return nil
}

// CheckID checks the id of a message: 1 to 256 visible ASCII characters without '.', which would
// make the signed text ambiguous. Errors: Invalid.
func CheckID(id string) error {
	ok := id != "" && len(id) <= maxIDLength
	for i := 0; ok && i < len(id); i++ {
		ok = id[i] > ' ' && id[i] < 0x7f && id[i] != '.'
	}
	if !ok {
		return sandbox.InvalidFields("message", []sandbox.Field{
			{Name: "webhook-id", Problem: "must be 1 to 256 visible ASCII characters without '.'"}})
	}
	return nil
}

// Secrets are the keys of a receiver.
type Secrets []Secret

// Verify authenticates a message at the time now, and returns its id and the Source of the secret that signed it.
// Errors: Unauthenticated, with the reason for the receiver's log. Do not send it to the sender.
func (s Secrets) Verify(h http.Header, body []byte, now time.Time) (id, source string, err error) {
	id, timestamp, signatures, err := messageHeaders(h)
	if err != nil {
		return "", "", err
	}
	sent, err := parseTimestamp(timestamp)
	if err != nil {
		return "", "", err
	}
	side := "behind"
	if sent.After(now) {
		side = "ahead of"
	}
	if off := now.Sub(sent).Abs(); off > Tolerance {
		return "", "", refused("the timestamp of message %s is %v %s this clock, more than %v: check both clocks",
			id, off.Round(time.Second), side, Tolerance)
	}
	for _, secret := range s {
		if len(secret.key) < minKey || secret.Ended(now) {
			continue
		}
		want := secret.mac(id, timestamp, body)
		for _, signature := range signatures {
			encoded, isV1 := strings.CutPrefix(signature, "v1,")
			got, err := base64.StdEncoding.Strict().DecodeString(encoded)
			if isV1 && err == nil && hmac.Equal(got, want) {
				return id, secret.Source(), nil
			}
		}
	}
	return "", "", refused("no signature of message %s matches an active secret", id)
}

func messageHeaders(h http.Header) (id, timestamp string, signatures []string, err error) {
	for _, name := range []string{HeaderID, HeaderTimestamp, HeaderSignature} {
		if n := len(h[name]); n != 1 {
			return "", "", nil, refused("header %s is present %d times, want once", name, n)
		}
	}
	id, timestamp = h.Get(HeaderID), h.Get(HeaderTimestamp)
	if err := CheckID(id); err != nil {
		return "", "", nil, refused("%w", err)
	}
	if signatures = strings.Fields(h.Get(HeaderSignature)); len(signatures) > maxSignatures {
		return "", "", nil, refused("message %s has %d signatures, more than %d", id, len(signatures), maxSignatures)
	}
	return id, timestamp, signatures, nil
}

// parseTimestamp accepts only the canonical form of a time, because the signature covers the text.
func parseTimestamp(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 || strconv.FormatInt(seconds, 10) != text {
		return time.Time{}, refused("timestamp %q is not in Unix seconds", text)
	}
	return time.Unix(seconds, 0), nil
}

func refused(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Unauthenticated, "webhook: "+format, args...)
}
