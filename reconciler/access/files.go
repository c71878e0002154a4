package access

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxFile limits the size of a credential file, in bytes.
const maxFile = 1 << 20

// LoadSecrets reads a file of signing secrets, one per line:
//
//	# game servers
//	whsec_...
//	whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw since=2026-01-01T00:00:00Z not_after=2027-01-01T00:00:00Z
//
// The file must not be readable or writable by group or others. Errors: Invalid, naming file and line.
func LoadSecrets(file string) (webhook.Secrets, error) {
	var secrets webhook.Secrets
	err := eachLine(file, func(words []string) error {
		secret, err := parseSecretLine(words)
		if err != nil {
			return err
		}
		secrets = append(secrets, secret)
		return nil
	})
	if err == nil && len(secrets) == 0 {
		err = sandbox.Errorf(sandbox.Invalid, "%s: the file has no secret", file)
	}
	return secrets, err
}

// parseSecretLine parses the words of one line.
func parseSecretLine(words []string) (webhook.Secret, error) {
	secret, err := webhook.ParseSecret(words[0])
	if err != nil {
		return secret, err
	}
	times := map[string]*time.Time{"since": &secret.Since, "not_after": &secret.NotAfter}
	for _, option := range words[1:] {
		key, value, _ := strings.Cut(option, "=")
		into, known := times[key]
		if !known {
			return secret, errSecretLine
		}
		if *into, err = time.Parse(time.RFC3339, value); err != nil {
			return secret, errSecretLine
		}
	}
	return secret, nil
}

var errSecretLine = sandbox.Errorf(sandbox.Invalid,
	"want <secret> [since=<RFC 3339 time>] [not_after=<RFC 3339 time>], such as not_after=2027-01-01T00:00:00Z")

// LoadTokens reads a file of bearer tokens, one per line:
//
//	# name token [environments=pattern,pattern] [scopes=scope,scope] [not_after=time]
//	terraform Jd0v...
//	game-server 8sKq... environments=catan-*,rpg-7 scopes=conditions
//
// A token without scopes has all scopes. The file must not be readable or writable by group or others.
// Errors: Invalid, naming file and line.
func LoadTokens(file string) (Tokens, error) {
	var tokens Tokens
	seen := map[string]bool{}
	err := eachLine(file, func(words []string) error {
		token, err := parseToken(words)
		if err != nil {
			return err
		}
		if seen[token.Name] {
			return sandbox.Errorf(sandbox.Invalid, "duplicate token name %s", token.Name)
		}
		seen[token.Name] = true
		tokens = append(tokens, token)
		return nil
	})
	if err == nil && len(tokens) == 0 {
		err = sandbox.Errorf(sandbox.Invalid, "%s: the file has no token", file)
	}
	return tokens, err
}

// parseToken parses the words of one line.
func parseToken(words []string) (Token, error) {
	if len(words) < 2 {
		return Token{}, sandbox.Errorf(sandbox.Invalid,
			"want <name> <token> [environments=pattern,pattern] [scopes=scope,scope] [not_after=time]")
	}
	var (
		environments []string
		scopes       []sandbox.Scope
		notAfter     time.Time
	)
	for _, option := range words[2:] {
		key, value, _ := strings.Cut(option, "=")
		switch key {
		case "environments":
			environments = strings.Split(value, ",")
		case "scopes":
			for scope := range strings.SplitSeq(value, ",") {
				if !slices.Contains(sandbox.Scopes(), sandbox.Scope(scope)) {
					return Token{}, sandbox.Errorf(sandbox.Invalid, "token %s: unknown scope %q: want scopes of %v",
						words[0], scope, sandbox.Scopes())
				}
				scopes = append(scopes, sandbox.Scope(scope))
			}
		case "not_after":
			var err error
			if notAfter, err = time.Parse(time.RFC3339, value); err != nil {
				return Token{}, sandbox.Errorf(sandbox.Invalid, "token %s: not_after=%q is not a time such as 2027-01-01T00:00:00Z",
					words[0], value)
			}
		default:
			return Token{}, sandbox.Errorf(sandbox.Invalid,
				"unknown option %s: want environments=pattern,pattern, scopes=scope,scope or not_after=time", key)
		}
	}
	token, err := MakeToken(words[0], words[1], environments...)
	token.Scopes, token.NotAfter = scopes, notAfter
	return token, err
}

// ReadToken returns the text of the first token in a client's file. The file holds the token alone, or lines in the
// format of LoadTokens. Errors: see LoadTokens.
func ReadToken(file string) (string, error) {
	var token string
	err := eachLine(file, func(words []string) error {
		if token == "" {
			token = words[min(1, len(words)-1)]
		}
		return nil
	})
	if err == nil && token == "" {
		err = sandbox.Errorf(sandbox.Invalid, "%s: the file has no token", file)
	}
	return token, err
}

// eachLine calls line with the words of each line, except empty lines and comments.
func eachLine(file string, line func(words []string) error) error {
	text, err := ReadPrivate(file)
	if err != nil {
		return err
	}
	n := 0
	for l := range strings.Lines(text) {
		n++
		words := strings.Fields(l)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := line(words); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "%s line %d: %w", file, n, err)
		}
	}
	return nil
}

// ReadPrivate reads a credential file. It fails if other users can read the file.
func ReadPrivate(file string) (_ string, err error) {
	f, err := os.Open(file) // #nosec G304 -- the operator names the file
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "reading credentials: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "reading credentials: %w", err)
	}
	if err := private.Check(file, "credentials", info); err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", file, maxFile)
	}
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "reading credentials: %w", err)
	}
	return string(b), nil
}
