package leasing_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// smallDisk mounts a disk of a size and returns its directory, and what makes it larger.
func smallDisk(t *testing.T, size string) (dir string, grow func(size string)) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount a disk that is full")
	}
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no disk can be mounted here, as in a container without the right to: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir, func(size string) {
		t.Helper()
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size="+size); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDiskLosesNothingThatWasAcknowledged fills the disk of a ledger under load: what is refused has
// not happened in any part, and all goes on by itself once there is space.
func TestFullDiskLosesNothingThatWasAcknowledged(t *testing.T) {
	dir, grow := smallDisk(t, "16m")
	inWorldOn(t, "sqlite://"+filepath.Join(dir, "ledger.db"), func(w *world) {
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { p.Type = sandbox.TypeRPG })
		for i := range 20 {
			w.acquire(fmt.Sprintf("did:plc:a%d", i))
		}
		later(time.Second)
		acknowledged, refused := w.fill()
		t.Logf("%d conditions were acknowledged before the disk was full, %d refused", len(acknowledged), len(refused))

		boxes := len(w.backend.Sandboxes())
		_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
		if sandbox.CodeOf(err) != sandbox.Unavailable || len(w.backend.Sandboxes()) != boxes {
			t.Errorf("an acquire was answered %v, and there are %d sandboxes, of %d", err, len(w.backend.Sandboxes()), boxes)
		}
		if leases, err := w.engine.ListLeases(w.Context(), sandbox.LeaseFilter{}); err != nil || len(leases) != 20 {
			t.Errorf("%d leases are listed, %v", len(leases), err)
		}

		grow("64m")
		began := time.Now()
		for _, d := range refused {
			r, err := w.engine.Deliver(w.Context(), d)
			if err != nil || r.Duplicate {
				t.Fatalf("%s was refused, and then answered %+v, %v", d.ID, r, err)
			}
		}
		t.Logf("all were stored %v after there was space", time.Since(began))
		w.acquire(ann)
		for _, d := range acknowledged {
			if r, err := w.engine.Deliver(w.Context(), d); err != nil || !r.Duplicate {
				t.Fatalf("%s was acknowledged, and then answered %+v, %v", d.ID, r, err)
			}
		}
		later(10 * time.Second)
		p, err := look(w.Context(), w.store, w.engine, w.backend.Sandboxes())
		if err != nil {
			t.Fatal(err)
		}
		k := known{sent: make(map[string]sandbox.Condition)}
		for _, d := range slices.Concat(acknowledged, refused) {
			k.sent[d.ID] = d.Condition
		}
		w.holds(p, k)
	})
}

// fill sends conditions, several at once, until the disk has been full for a while.
func (w *world) fill() (acknowledged, refused []sandbox.Delivery) {
	w.Helper()
	for round := 0; len(refused) < 300; round++ {
		if round > 100 {
			w.Fatal("the disk is never full")
		}
		body := strings.Repeat("x", 8<<10)
		if round%3 == 2 {
			body = strings.Repeat("x", 200<<10) // together more than SQLite keeps in memory until the commit
		}
		var sent []sandbox.Delivery
		for i := range 20 {
			d := death(fmt.Sprintf("m-%d-%d", round, i), fmt.Sprintf("did:plc:a%d", i), body)
			if round%10 != 9 {
				d.Condition.Type = "weather.changed" // ends nothing
			}
			sent = append(sent, d)
		}
		_, errs := w.together(sent)
		for i, err := range errs {
			switch sandbox.CodeOf(err) {
			case "":
				acknowledged = append(acknowledged, sent[i])
			case sandbox.Unavailable:
				refused = append(refused, sent[i])
			default:
				w.Errorf("%s was answered %v", sent[i].ID, err)
			}
		}
	}
	return acknowledged, refused
}
