//go:build linux

package verifier

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// environ returns the verifier's variables: those that the caller set, and others unless they lead to something that
// sandbox code can change.
func (r Run) environ(env []string) []string {
	kept := make([]string, 0, len(env)+2)
	has := map[string]bool{}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "PATH":
			value = safeList(value)
		case slices.Contains(r.Given, name):
		case slices.Contains(own, name) || strings.HasPrefix(name, "LD_") || !safeValue(name, value):
			continue
		}
		kept, has[name] = append(kept, name+"="+value), true
	}
	for _, name := range []string{"HOME", "TMPDIR"} {
		if !has[name] {
			kept = append(kept, name+"="+r.Home)
		}
	}
	return kept
}

// own are variables about the working environment of the sandbox's user.
var own = []string{"HOME", "TMPDIR", "TMP", "TEMP", "PWD", "OLDPWD", "ENV", "BASH_ENV"}

// safeList returns the resolved directories of a list that sandbox code cannot write.
func safeList(list string) string {
	var kept []string
	for _, dir := range filepath.SplitList(list) {
		if at, err := filepath.EvalSymlinks(dir); filepath.IsAbs(dir) && err == nil && safe(at) {
			kept = append(kept, at)
		}
	}
	return strings.Join(kept, string(filepath.ListSeparator))
}

// safeValue reports whether no path in a value leads to something that sandbox code can write. A relative path leads to
// the working directory, which it can write: NODE_PATH=modules, or NODE_OPTIONS=--require dotenv.
func safeValue(name, value string) bool {
	if hasSuffix(name, "PATH", "LIB") && slices.ContainsFunc(filepath.SplitList(value), relative) ||
		value != "" && hasSuffix(name, "OPT", "OPTS", "OPTIONS") {
		return false
	}
	for _, word := range strings.FieldsFunc(value, func(c rune) bool { return strings.ContainsRune(":;,= \t\n", c) }) {
		if strings.HasPrefix(word, ".") || relative(word) && strings.Contains(word, "/") || !relative(word) && !safe(word) {
			return false
		}
	}
	return true
}

func relative(path string) bool { return !filepath.IsAbs(path) }

func hasSuffix(name string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// safe reports whether sandbox code cannot change a path, nor a directory on the way: everything is on read-only file
// systems. If the path does not exist, it checks the existing part.
func safe(path string) bool {
	at, err := filepath.EvalSymlinks(path)
	for ; errors.Is(err, fs.ErrNotExist) && path != "/"; at, err = filepath.EvalSymlinks(path) {
		path = filepath.Dir(filepath.Clean(path))
	}
	if err != nil {
		return false
	}
	for ; ; at = filepath.Dir(at) {
		var s unix.Statfs_t
		if err := unix.Statfs(at, &s); err != nil || s.Flags&unix.ST_RDONLY == 0 {
			return false
		}
		if at == string(os.PathSeparator) {
			return true
		}
	}
}
