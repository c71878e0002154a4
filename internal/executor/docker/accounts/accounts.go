// Package accounts gives the users of a sandbox names: it adds them to the image's /etc/passwd and
// /etc/group, where programs look up user names.
package accounts

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// Account is a user with its own group.
type Account struct {
	Name     string
	UID, GID int
	Home     string
}

// These files name the users of an image.
const (
	PasswdPath = "/etc/passwd"
	GroupPath  = "/etc/group"
)

// shell is the shell of the added users. A sandbox without it has no user that needs it.
const shell = "/bin/sh"

// Passwd returns a passwd file with the accounts before the image's entries, so that no user of the image takes their
// names. An id that the image already names keeps its name. Passwd returns nil if the image names all of the ids.
func Passwd(image []byte, add []Account) []byte {
	return prepend(image, add, func(a Account) (int, []string) {
		return a.UID, []string{a.Name, "x", strconv.Itoa(a.UID), strconv.Itoa(a.GID), a.Name, home(a.Home), shell}
	})
}

// Group is Passwd for a group file.
func Group(image []byte, add []Account) []byte {
	return prepend(image, add, func(a Account) (int, []string) {
		return a.GID, []string{a.Name, "x", strconv.Itoa(a.GID), ""}
	})
}

// Name returns the name of a user in a passwd file, "" if there is none.
func Name(passwd []byte, uid int) string {
	for line := range bytes.Lines(passwd) {
		if f := strings.Split(strings.TrimRight(string(line), "\r\n"), ":"); len(f) > 2 && isID(f[2], uid) {
			return f[0]
		}
	}
	return ""
}

func prepend(image []byte, add []Account, entry func(Account) (id int, fields []string)) []byte {
	var lines []byte
	for _, a := range add {
		if id, fields := entry(a); Name(image, id) == "" {
			lines = append(lines, strings.Join(fields, ":")+"\n"...)
		}
	}
	if lines == nil {
		return nil
	}
	return slices.Concat(lines, image)
}

func isID(text string, id int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n == id
}

// home returns dir if it is valid in a passwd line, otherwise "/".
func home(dir string) string {
	if !strings.HasPrefix(dir, "/") || strings.ContainsAny(dir, ":\r\n\x00") {
		return "/"
	}
	return dir
}
