// Package seal encrypts a ledger's secrets with keys that are stored beside the ledger. Neither the ledger nor the key
// file alone reveals a secret.
//
// A key file has one key per line. The first encrypts:
//
//	# any comment
//	sandbox-key-1 Zm9v…            base64 of 32 random bytes
//
// To rotate, put a new key above the old ones, on every machine that serves the ledger. Old keys still decrypt. Once
// everything is re-encrypted with the newest key, their lines can be removed.
package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/wholefile"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	keyKind = "sandbox-key-1"
	keySize = 32 // AES-256
	idSize  = 8
	// format is the first byte of each sealed text; the key's id, the nonce and the text follow.
	format = 1
	// MaxFile bounds a key file, in bytes.
	MaxFile = 64 << 10
)

// Keys seal and open. They are safe for concurrent use. A nil *Keys has no key.
type Keys struct {
	file   string
	create bool

	mu   sync.Mutex // guards keys
	keys []key      // the first seals
}

type key struct {
	id   []byte
	aead cipher.AEAD
	raw  []byte
}

// InFile returns the keys in a file. It is read at first use. With create, Seal creates a missing file.
func InFile(file string, create bool) *Keys { return &Keys{file: file, create: create} }

// Seal encrypts a text that only opens with the same purpose. Errors: Invalid if there is no key or the file is
// unusable.
func (k *Keys) Seal(text []byte, purpose string) ([]byte, error) {
	if k == nil {
		return nil, errNoKey
	}
	keys, err := k.loadOrMake()
	if err != nil {
		return nil, err
	}
	sealed := append([]byte{format}, keys[0].id...)
	return keys[0].aead.Seal(sealed, nil, text, []byte(purpose)), nil
}

// Derive returns a key for another purpose, derived from the one that seals. It differs for each purpose and each first
// key of the file. Errors: as Seal.
func (k *Keys) Derive(purpose string) (sandbox.Secret, error) {
	if k == nil {
		return "", errNoKey
	}
	keys, err := k.loadOrMake()
	if err != nil {
		return "", err
	}
	return keys[0].derive(purpose)
}

// DeriveAll returns what Derive returns for each key of the file, the one that seals first. It reads the file again.
// During a rotation, a caller can so accept what an older key has made. Errors: as Seal.
func (k *Keys) DeriveAll(purpose string) ([]sandbox.Secret, error) {
	if k == nil {
		return nil, errNoKey
	}
	if _, err := k.loadOrMake(); err != nil {
		return nil, err
	}
	keys, err := k.load(true)
	if err != nil {
		return nil, err
	}
	all := make([]sandbox.Secret, 0, len(keys))
	for _, key := range keys {
		derived, err := key.derive(purpose)
		if err != nil {
			return nil, err
		}
		all = append(all, derived)
	}
	return all, nil
}

func (k key) derive(purpose string) (sandbox.Secret, error) {
	derived, err := hkdf.Key(sha256.New, k.raw, nil, purpose, keySize)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Internal, "deriving a key: %w", err)
	}
	return sandbox.Secret(hex.EncodeToString(derived)), nil
}

// loadOrMake returns the keys, at least one. It may create the file.
func (k *Keys) loadOrMake() ([]key, error) {
	keys, err := k.load(false)
	if errors.Is(err, fs.ErrNotExist) && k.create {
		if err = generate(k.file); err == nil {
			keys, err = k.load(true)
		}
	}
	return keys, err
}

var errNoKey = sandbox.Errorf(sandbox.Invalid,
	"this service has no key to keep secrets under: start it with --secret-key-file")

// Open decrypts a text that was sealed for the purpose. Errors: Unavailable if the file lacks the key, which an
// operator may add; Failed if the text was changed or sealed for another purpose.
func (k *Keys) Open(sealed []byte, purpose string) ([]byte, error) {
	if k == nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "%w", errNoKey)
	}
	if len(sealed) < 1+idSize || sealed[0] != format {
		return nil, sandbox.Errorf(sandbox.Failed,
			"the ledger's value for %s was sealed by another program or a later release", purpose)
	}
	id, rest := sealed[1:1+idSize], sealed[1+idSize:]
	found, err := k.find(id)
	if err != nil {
		return nil, err
	}
	text, err := found.aead.Open(nil, nil, rest, []byte(purpose))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Failed,
			"opening %s: %w: it was changed in the ledger, or moved there from elsewhere", purpose, err)
	}
	return text, nil
}

// Has checks that the file has the key of a sealed text. Errors: as Open if the key is missing.
func (k *Keys) Has(sealed []byte) error {
	if k == nil {
		return sandbox.Errorf(sandbox.Unavailable, "%w", errNoKey)
	}
	if len(sealed) < 1+idSize {
		return sandbox.Errorf(sandbox.Failed, "a value in the ledger was sealed by another program")
	}
	_, err := k.find(sealed[1 : 1+idSize])
	return err
}

// Stale reports whether a text is sealed under another key than the first.
func (k *Keys) Stale(sealed []byte) (bool, error) {
	if k == nil {
		return false, nil
	}
	keys, err := k.load(true)
	if err != nil {
		return false, err
	}
	return len(sealed) < 1+idSize || !bytes.Equal(sealed[1:1+idSize], keys[0].id), nil
}

// find returns a key by its id. It reads a file without the key again, because the key may be new.
func (k *Keys) find(id []byte) (key, error) {
	for _, again := range []bool{false, true} {
		keys, err := k.load(again)
		if err != nil {
			return key{}, sandbox.Errorf(sandbox.Unavailable, "%w", err)
		}
		for _, found := range keys {
			if bytes.Equal(found.id, id) {
				return found, nil
			}
		}
	}
	return key{}, sandbox.Errorf(sandbox.Unavailable,
		"%s has no key %s: add the key's line from the machine that sealed it", k.file, hex.EncodeToString(id))
}

func (k *Keys) load(again bool) ([]key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys != nil && !again {
		return k.keys, nil
	}
	keys, err := read(k.file)
	if err != nil {
		return nil, err
	}
	k.keys = keys
	return keys, nil
}

// Count returns how many keys a file holds. Errors: Invalid; fs.ErrNotExist if there is none.
func Count(file string) (int, error) {
	keys, err := read(file)
	return len(keys), err
}

// Contents returns the text of a key file, after checking it. Errors: as Count.
func Contents(file string) ([]byte, error) {
	text, _, err := readText(file)
	return text, err
}

// Missing returns the ids of the keys of one file that another one lacks. Errors: as Count.
func Missing(file, of string) (ids []string, err error) {
	has, err := read(file)
	if err != nil {
		return nil, err
	}
	wanted, err := read(of)
	for _, k := range wanted {
		if !slices.ContainsFunc(has, func(h key) bool { return bytes.Equal(h.id, k.id) }) {
			ids = append(ids, hex.EncodeToString(k.id))
		}
	}
	return ids, err
}

// read reads a key file, which only its owner may have access to. Errors: Invalid, naming it.
func read(file string) ([]key, error) {
	_, keys, err := readText(file)
	return keys, err
}

func readText(file string) ([]byte, []key, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, sandbox.Errorf(sandbox.Invalid, "reading the key for secrets: %w", err)
	}
	if err := private.Check(file, "keys", info); err != nil {
		return nil, nil, err
	}
	if info.Size() > MaxFile {
		return nil, nil, sandbox.Errorf(sandbox.Invalid, "%s is larger than %d bytes: it is not a key file", file, MaxFile)
	}
	text, err := os.ReadFile(file) // #nosec G304 -- the operator names the file
	if err != nil {
		return nil, nil, sandbox.Errorf(sandbox.Invalid, "reading the key for secrets: %w", err)
	}
	var keys []key
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		parsed, ok := parse(words)
		if !ok {
			return nil, nil, sandbox.Errorf(sandbox.Invalid, "%s line %d: want %s and the base64 of %d bytes",
				file, n, keyKind, keySize)
		}
		keys = append(keys, parsed)
	}
	if len(keys) == 0 {
		return nil, nil, sandbox.Errorf(sandbox.Invalid, "%s holds no key", file)
	}
	return text, keys, nil
}

func parse(words []string) (key, bool) {
	if len(words) != 2 || words[0] != keyKind {
		return key{}, false
	}
	raw, err := base64.StdEncoding.DecodeString(words[1])
	if err != nil || len(raw) != keySize {
		return key{}, false
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return key{}, false
	}
	// Random nonces are safe for 2^32 texts under one key.
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return key{}, false
	}
	id := sha256.Sum256(append([]byte("sandbox-key-id\x00"), raw...))
	return key{id: id[:idSize], aead: aead, raw: raw}, true
}

// generate creates a key file with one new key unless the file exists. If several programs do so at the same time, one
// succeeds. No reader sees half of the file, and it survives a crash of the machine.
func generate(file string) (err error) {
	raw := make([]byte, keySize)
	_, _ = rand.Read(raw) // never fails since Go 1.24
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making the directory of %s: %w", file, err)
	}
	f, err := os.CreateTemp(dir, ".secret-key-*") // mode 0600
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "making %s: %w", file, err)
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.WriteString(keyKind + " " + base64.StdEncoding.EncodeToString(raw) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "writing %s: %w", file, err)
	}
	if err := os.Link(f.Name(), file); err != nil && !errors.Is(err, fs.ErrExist) {
		return sandbox.Errorf(sandbox.Unavailable, "making %s: %w", file, err)
	}
	if err := wholefile.Sync(dir); err != nil { // also if another program has made the file and not synced it yet
		return sandbox.Errorf(sandbox.Unavailable, "making the name of %s durable: %w", file, err)
	}
	return nil
}

// Generate creates a key file with one new key unless the file exists. Errors: Unavailable.
func Generate(file string) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	return generate(file)
}
