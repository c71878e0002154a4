//go:build linux

package kernel_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/kernel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == kernel.Command { // like the guest, for another user
		if kernel.Main(os.Args[2:], os.Stdout) != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func asked(t *testing.T, args ...string) (k wire.Kernel) {
	t.Helper()
	var out bytes.Buffer
	if err := kernel.Main(args, &out); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &k); err != nil {
		t.Fatal(err)
	}
	return k
}

func TestTheKernelSaysItsVersion(t *testing.T) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	if k := asked(t); k.Release != unix.ByteSliceToString(u.Release[:]) || k.Version == "" || len(k.Missing) != 0 {
		t.Errorf("it says %+v", k)
	}
}

func TestASocketThatCannotBeOpenedIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	for _, m := range asked(t, "-needs", "-socket", path).Missing {
		if m.Kind == wire.MissingSocket && m.What == path && m.Error == unix.ENOENT.Error() {
			return
		}
	}
	t.Error("it is not named")
}
