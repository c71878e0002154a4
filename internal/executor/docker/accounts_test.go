package docker_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// whoProgram prints its user and group as Go's packages resolve them, and tries to open the files for writing.
const whoProgram = `package main

import (
	"fmt"
	"os"
	"os/user"
)

func main() {
	u, err := user.Current()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	g, err := user.LookupGroupId(u.Gid)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(u.Username, g.Name, u.HomeDir, os.Getenv("USER"), os.Getenv("LOGNAME"), os.Getenv("HOME"))
	for _, path := range []string{"/etc/passwd", "/etc/group", "/.sandbox-channel/passwd"} {
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			_ = f.Close()
			fmt.Println(path, "can be written")
		}
		if err := os.Remove(path); err == nil {
			fmt.Println(path, "can be removed")
		}
	}
}
`

const appUsers = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:App:/home/app:/bin/sh"

func TestProgramsFindANameForTheirUser(t *testing.T) {
	t.Parallel()
	who := dockertest.File{Name: "who", Mode: 0o755, Content: executortest.Compile(t, whoProgram, "CGO_ENABLED=0")}
	passwd := dockertest.File{Name: "etc/passwd", Mode: 0o644, Content: []byte(appUsers)}
	group := dockertest.File{Name: "etc/group", Mode: 0o644, Content: []byte("root:x:0:\nstaff:x:1000:\n")}
	const own = "sandbox sandbox /workspace sandbox sandbox /workspace\n"
	for name, row := range map[string]struct {
		files []dockertest.File
		user  string // of the image, then of the confinement
		fixed string
		env   map[string]string
		want  string
	}{
		"an image from scratch":  {files: []dockertest.File{who}, want: own},
		"an image whose user is": {files: []dockertest.File{who, passwd, group}, user: "app", want: own},
		"a file behind a link": {files: []dockertest.File{who, {Name: "etc/passwd", Link: "/usr/lib/users"},
			{Name: "usr/lib/users", Mode: 0o644, Content: []byte(appUsers)}, group}, want: own},
		"a link that leads nowhere": {
			files: []dockertest.File{who, {Name: "etc/passwd", Link: "/usr/lib/users"}, {Name: "usr/lib/", Mode: 0o755}},
			want:  own,
		},
		"a home of the environment": {
			files: []dockertest.File{who, passwd},
			env:   map[string]string{"HOME": "/data"},
			want:  "sandbox sandbox /data sandbox sandbox /data\n",
		},
		"a fixed user whom the image names": {
			files: []dockertest.File{who, passwd, group},
			fixed: "1000:1000",
			want:  "app staff /home/app app app /workspace\n",
		},
		"a fixed user whom it does not": {
			files: []dockertest.File{who, passwd, group},
			fixed: "2000:1000",
			want:  "sandbox staff /workspace sandbox sandbox /workspace\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var changes []string
			if row.user != "" {
				changes = append(changes, "USER "+row.user)
			}
			w := newWorld(t, dockertest.Import(t, row.files, changes...))
			spec := w.spec()
			spec.Confinement, spec.Env = sandbox.Confinement{User: row.fixed}.WithDefaults(), row.env
			must(t, w.x.Spawn(t.Context(), spec))
			if got := w.exec(t, spec.Handle, "/who"); got != row.want {
				t.Errorf("got  %q\nwant %q", got, row.want)
			}
		})
	}
}

func TestAccountsOfASandboxAreItsOwnAndStay(t *testing.T) {
	t.Parallel()
	secret := dockertest.File{Name: "etc/passwd", Mode: 0o600, Content: []byte("app:hash:1000:1000::/:/bin/sh\n")}
	w := newWorld(t, dockertest.Import(t, append(dockertest.BusyboxFiles(t), secret), "ENV PATH=/bin"))
	one, other := w.spec(), w.spec()
	one.Resources.DiskMB = 1024
	must(t, w.x.Spawn(t.Context(), one))
	must(t, w.x.Spawn(t.Context(), other))
	for range 2 {
		for _, h := range []driver.Handle{one.Handle, other.Handle} {
			got := w.exec(t, h, "sh", "-c",
				"whoami; id -un; id -gn; cut -d: -f1,3 /etc/passwd | grep sandbox; grep -c app /etc/passwd; id -u verifier; true")
			is := sandbox.Confinement{}.Identity(h.SandboxID, false)
			if want := fmt.Sprintf("sandbox\nsandbox\nsandbox\nsandbox:%d\n0\n%d\n", is.UID, is.UID+1); got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
			wake(t, w.x, h)
		}
	}
	if found, _ := w.findings(t, one.SandboxID); len(found) != 0 {
		t.Errorf("findings: %v", found)
	}
}

func TestASpawnReadsTheAccountsOfAnImageOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	x, p := throughProxy(t)
	var asked, read atomic.Int64
	p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		asked.Add(1)
		if strings.HasSuffix(r.URL.Path, "/archive") {
			read.Add(1)
		}
		pass(rw, r)
	})
	for _, want := range []int64{2, 2, 2} { // the two account files
		asked.Store(0)
		must(t, x.Spawn(t.Context(), w.spec()))
		t.Logf("the spawn made %d requests", asked.Load())
		if read.Load() != want {
			t.Errorf("files of the image were read %d times, want %d", read.Load(), want)
		}
	}
}
