package accounts_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/accounts"
)

var own = []accounts.Account{
	{Name: "sandbox", UID: 20000, GID: 20000, Home: "/workspace"},
	{Name: "verifier", UID: 20001, GID: 20001, Home: "/"},
}

const (
	ownUsers  = "sandbox:x:20000:20000:sandbox:/workspace:/bin/sh\nverifier:x:20001:20001:verifier:/:/bin/sh\n"
	ownGroups = "sandbox:x:20000:\nverifier:x:20001:\n"
)

func TestTheUsersOfASandboxAreAddedToThoseOfItsImage(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ passwd, group, wantPasswd, wantGroup string }{
		"an image without files": {"", "", ownUsers, ownGroups},
		"an image with root": {"root:x:0:0:root:/root:/bin/sh\n", "root:x:0:\n",
			ownUsers + "root:x:0:0:root:/root:/bin/sh\n", ownGroups + "root:x:0:\n"},
		"a last line without an end": {"root:x:0:0::/:", "root:x:0:", ownUsers + "root:x:0:0::/:",
			ownGroups + "root:x:0:"},
		"another user of the same name": {"sandbox:x:1000:1000::/home:/bin/sh\n", "sandbox:x:1000:\n",
			ownUsers + "sandbox:x:1000:1000::/home:/bin/sh\n", ownGroups + "sandbox:x:1000:\n"},
		"lines that are no accounts": {"\n# 20000\nx:20000\n", "+:::\n", ownUsers + "\n# 20000\nx:20000\n",
			ownGroups + "+:::\n"},
		"an id that the image has named": {"app:x:20000:7::/home/app:/bin/sh\r\n", "app:x:20000:\n",
			"verifier:x:20001:20001:verifier:/:/bin/sh\napp:x:20000:7::/home/app:/bin/sh\r\n",
			"verifier:x:20001:\napp:x:20000:\n"},
	} {
		if got := string(accounts.Passwd([]byte(row.passwd), own)); got != row.wantPasswd {
			t.Errorf("%s: users are %q, want %q", name, got, row.wantPasswd)
		}
		if got := string(accounts.Group([]byte(row.group), own)); got != row.wantGroup {
			t.Errorf("%s: groups are %q, want %q", name, got, row.wantGroup)
		}
	}
}

func TestFilesThatNameEveryUserStayAsTheyAre(t *testing.T) {
	t.Parallel()
	app := []accounts.Account{{Name: "sandbox", UID: 1000, GID: 50, Home: "/workspace"}}
	if got := accounts.Passwd([]byte("app:x:1000:1000::/home/app:/bin/sh\n"), app); got != nil {
		t.Errorf("users are %q", got)
	}
	if got := accounts.Group([]byte("staff:x:50:\n"), app); got != nil {
		t.Errorf("groups are %q", got)
	}
}

func TestNothingOfAHomeBecomesALineOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, home := range []string{"/w\nroot2:x:0:0::/:/bin/sh", "/w:/bin/false", "relative", ""} {
		got := string(accounts.Passwd(nil, []accounts.Account{{Name: "sandbox", UID: 1, GID: 1, Home: home}}))
		if want := "sandbox:x:1:1:sandbox:/:/bin/sh\n"; got != want {
			t.Errorf("%q: users are %q, want %q", home, got, want)
		}
	}
}

func TestAUserHasTheNameThatIsFirst(t *testing.T) {
	t.Parallel()
	const passwd = "root:x:0:0::/:\napp:x:1000:1000::/:\nagain:x:1000:1::/:\nodd:x:ten:1::/:\n"
	for uid, want := range map[int]string{0: "root", 1000: "app", 10: "", 1: ""} {
		if got := accounts.Name([]byte(passwd), uid); got != want {
			t.Errorf("user %d is %q, want %q", uid, got, want)
		}
	}
}
