package executortest

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
)

// inherits restores a snapshot of one sandbox's /data in another one, as for the next generation of a lease.
func (w *world) inherits(t *testing.T, from, to driver.Handle) {
	t.Helper()
	store, err := snapshotstore.Open(t.Context(), "file://"+filepath.ToSlash(t.TempDir()))
	must(t, err)
	defer func() { must(t, store.Close()) }()
	data, err := w.x.Export(t.Context(), from)
	must(t, err)
	saved, err := store.Save(t.Context(), "contract", data, 64<<20)
	must(t, errors.Join(err, data.Close()))
	archive, err := store.Load(t.Context(), saved)
	must(t, err)
	must(t, errors.Join(driver.Unpack(t.Context(), w.x, to, "/data", archive)))
}

// exportInherited: the next generation owns what a generation left in /data, although it has another user. Links out of
// /data do not change their targets.
func exportInherited(t *testing.T, w *world) {
	w.needExec(t)
	from, to := w.spawn(t), w.spawn(t)
	w.sh(t, from, `umask 077; echo theirs > /workspace/outside; cd /data; mkdir -p a/b/c; echo one > a/b/c/secret
		ln a/b/c/secret a/hard; echo two > a/b/none; chmod 0 a/b/none; chmod 500 a/b/c
		ln -s b/c/secret a/soft; ln -s /data/a/b absolute; ln -s ../../../workspace/outside a/b/up
		ln -s /workspace/outside out; ln -s /workspace dir; ln -s /etc/passwd passwd; mkfifo fifo; touch last`)
	const outside = "stat -c '%n %a %u:%g %Y' /workspace /workspace/outside /etc/passwd /etc; cat /workspace/outside"
	w.sh(t, to, "echo mine > /workspace/outside; chmod 640 /workspace/outside")
	before := w.sh(t, to, outside).stdout()
	w.inherits(t, from, to)
	if after := w.sh(t, to, outside).stdout(); after != before || !strings.HasSuffix(after, "mine\n") {
		t.Errorf("outside of /data is now\n%s\nbefore it was\n%s", after, before)
	}
	const use = `cd /data; find . ! '(' -user $(id -u) -group $(id -g) ')'
		find . -mindepth 1 | sort; stat -c '%a %h' a/b/c/secret a/b/none; stat -c %a a/b a/b/c; readlink a/soft; readlink absolute
		chmod 600 a/b/none; chmod 700 a/b/c; for f in a/hard a/b/none a/soft absolute/new; do echo more >> $f || echo refused $f; done
		cat a/b/c/secret a/b/none a/b/new; rm a/b/c/secret; cat a/hard; mv a/b moved && ls moved`
	const want = `./a
./a/b
./a/b/c
./a/b/c/secret
./a/b/none
./a/hard
./a/soft
./absolute
./last
600 2
0 1
700
500
b/c/secret
a/b
one
more
more
two
more
more
one
more
more
c
new
none
`
	if res := w.sh(t, to, use); res.stdout() != want || len(res.Stderr) > 0 {
		t.Errorf("the next generation finds\n%s%s\nwant\n%s", res.stdout(), res.Stderr, want)
	}
}
