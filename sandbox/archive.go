package sandbox

import (
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
)

// Archive is a tar archive that the service fetches and unpacks into each sandbox when it is created. Its credential
// stays outside of the sandbox.
type Archive struct {
	URL string `json:"url" doc:"URL with https, such as that of an object in a bucket, or with http. Its host must be allowed by the service (--workspace-allow, without TLS as http://host). The query of a presigned URL is stored and shown with the environment."`
	// SHA256 pins the content: every sandbox starts with the same files.
	SHA256 string `json:"sha256" doc:"SHA-256 of the file, as 64 lower-case hexadecimal digits."`
	Target string `json:"target" doc:"Directory in the sandbox that it is unpacked into: /workspace or a path below. Files that are there are replaced."`
	// Credential names the secret. No sandbox gets it.
	Credential string `json:"credential_secret,omitempty" doc:"Name of the secret that is sent as the value of a header, such as Bearer and a token. No sandbox gets this secret. Default: none."`
	Header     string `json:"credential_header,omitempty" doc:"Header of the credential. Default Authorization."`
}

// Defaults and limits of archives.
const (
	DefaultArchiveHeader = "Authorization"
	MaxArchives          = 16
)

// withArchiveDefaults returns the archives with all defaults filled in.
func withArchiveDefaults(archives []Archive) []Archive {
	archives = slices.Clone(archives)
	for i := range archives {
		if archives[i].Credential != "" {
			orDefault(&archives[i].Header, DefaultArchiveHeader)
		}
	}
	return archives
}

// IsArchiveCredential reports whether a secret is the credential of an archive.
func (s EnvironmentSpec) IsArchiveCredential(secret string) bool {
	return secret != "" && slices.ContainsFunc(s.Archives, func(a Archive) bool { return a.Credential == secret })
}

// Place returns the URL without its query, which may hold a signature.
func (a Archive) Place() string {
	place, _, _ := strings.Cut(a.URL, "?")
	return place
}

// archiveFields returns the problems of the archives.
func (s EnvironmentSpec) archiveFields() (f []Field) {
	if n := len(s.Archives); n > MaxArchives {
		f = append(f, Field{"archives", fmt.Sprintf("must be at most %d, not %d", MaxArchives, n)})
	}
	for i, a := range s.Archives {
		bad := func(name, problem string, args ...any) {
			f = append(f, Field{fmt.Sprintf("archives[%d].%s", i, name), fmt.Sprintf(problem, args...)})
		}
		if problem := archiveURLProblem(a.URL); problem != "" {
			bad("url", "%s", problem)
		}
		if len(a.SHA256) != 64 || strings.Trim(a.SHA256, "0123456789abcdef") != "" {
			bad("sha256", "must be 64 hexadecimal digits in lower case, as sha256sum writes them, not %q", a.SHA256)
		}
		if clean, err := CleanPath(a.Target); err != nil || clean != a.Target || !Within(a.Target, WorkspaceRoot) {
			bad("target", "must be /workspace or an absolute path below, not %q", a.Target)
		}
		if Within(a.Target, ConfigFile) {
			bad("target", takesConfigFile)
		}
		for _, m := range s.Mounts {
			if Within(a.Target, m.Target) {
				bad("target", "is in the mount of %s", m.Target)
			}
		}
		if a.Credential != "" && !slices.Contains(s.Secrets, a.Credential) {
			bad("credential_secret", "must be the name of one of the environment's secrets, not %q", a.Credential)
		}
		if a.Header != "" && a.Credential == "" {
			bad("credential_header", "must not be set without credential_secret")
		}
		if a.Header != "" && !isHeaderName(a.Header) {
			bad("credential_header", "must be the name of a header such as Authorization, not %q", a.Header)
		}
	}
	return f
}

// isHeaderName reports whether a header may carry a credential. The client itself sets Host and headers of the
// connection.
func isHeaderName(name string) bool {
	for _, r := range name {
		if r >= 0x80 || r != '-' && !isAlphanumeric(byte(r)) {
			return false
		}
	}
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Host", "Connection", "Content-Length", "Transfer-Encoding", "Accept-Encoding", "Te", "Trailer", "Upgrade":
		return false
	}
	return true
}

// archiveURLProblem returns the problem of an archive's URL, "" if it has none.
func archiveURLProblem(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > 4096 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "must be a URL such as https://bucket.example.com/repository.tar.gz"
	case u.Scheme != "https" && u.Scheme != "http":
		return fmt.Sprintf("must begin with https://, not %q", u.Scheme)
	case u.User != nil:
		return "must not contain a user or a password: use credential_secret"
	case u.Hostname() == "" || u.Fragment != "" || u.Opaque != "" || strings.Trim(u.Path, "/") == "":
		return "must have a host and a path, and no fragment"
	}
	return ""
}
