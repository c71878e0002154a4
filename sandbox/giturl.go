package sandbox

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// scpForm is the form user@host:path, which Git takes for ssh.
var scpForm = regexp.MustCompile(`^([^/@:]+)@([^/@:\[\]]+):([^/].*|/.+)$`)

// ParseGitURL parses the URL of a repository, also in the form user@host:path of ssh. The path of that form may be
// relative, to the user's home directory.
func ParseGitURL(text string) (*url.URL, error) {
	if m := scpForm.FindStringSubmatch(text); m != nil && !strings.Contains(text, "://") {
		return &url.URL{Scheme: "ssh", User: url.User(m[1]), Host: m[2], Path: m[3]}, nil
	}
	return url.Parse(text)
}

// GitURLProblem returns what is wrong with the URL of a repository, "" if nothing is.
func GitURLProblem(text string) string {
	u, err := ParseGitURL(text)
	if err != nil || len(text) > 2048 ||
		strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) ||
		strings.ContainsAny(text, `"'\`) {
		return "must be a URL such as https://git.example.com/team/repository.git or git@git.example.com:team/repository.git"
	}
	if u.Scheme == fileScheme {
		return fileURLProblem(u)
	}
	isSSH := u.Scheme == "ssh"
	_, hasPassword := u.User.Password()
	switch {
	case !isSSH && u.Scheme != "https" && u.Scheme != "http":
		return fmt.Sprintf("must begin with https://, ssh:// or file://, not %q", u.Scheme)
	case !isSSH && u.User != nil:
		return "must not contain a user or a password: use credential_secret"
	case isSSH && (u.User.Username() == "" || strings.HasPrefix(u.User.Username(), "-")):
		return "must name the user, such as ssh://git@git.example.com/team/repository.git"
	case hasPassword:
		return "must not contain a password: use credential_secret"
	case u.Hostname() == "" || strings.HasPrefix(u.Host, "-") || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" ||
		u.Opaque != "":
		return "must have a host and a path, and neither a query nor a fragment"
	case strings.Trim(u.Path, "/") == "" || strings.HasPrefix(u.Path, "-") ||
		strings.ContainsFunc(u.Path, func(r rune) bool { return isControl(r) || r == '\'' || r == '\\' }) ||
		slices.Contains(strings.Split(u.Path, "/"), ".."):
		return "must have the path of a repository, without \"..\", quotes and control characters"
	}
	return ""
}

// fileScheme is that of a repository on the service's machine.
const fileScheme = "file"

// fileURLProblem is GitURLProblem for a repository on the service's machine.
func fileURLProblem(u *url.URL) string {
	switch {
	case u.Host != "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "":
		return "must have nothing but a path after file://, such as file:///srv/git/repository"
	case u.Path == "/" || strings.ContainsFunc(u.Path, isControl):
		return "must have the path of a repository, without control characters"
	default:
		return sourceProblem(u.Path)
	}
}
