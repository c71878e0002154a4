//go:build linux

package keeper

import (
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
)

func TestInputIsTakenOnce(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in := newInput(func() {}, func() {})
	in.put(0, []byte("abc"), false) // before the command begins
	in.begin(w, func(work func()) { work() })
	in.put(0, []byte("abcde"), false) // again, and more
	in.put(9, []byte("x"), false)     // does not follow
	in.put(5, []byte("fg"), true)
	var got strings.Builder
	b := make([]byte, 64)
	for {
		n, err := r.Read(b)
		got.Write(b[:n])
		if err != nil {
			break
		}
	}
	if got.String() != "abcdefg" {
		t.Errorf("%q", got.String())
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestACommandEndsWhenNothingSendsItsInput(t *testing.T) {
	for _, c := range []struct {
		name   string
		after  func(in *input)
		killed bool
	}{
		{"gone", func(*input) {}, true},
		{"back in time", func(in *input) { in.feeds() }, false},
		{"two, and one leaves", func(in *input) { in.feeds(); in.feeds(); in.leaves() }, false},
		{"back, and gone again", func(in *input) { in.feeds(); in.leaves() }, true},
		{"all of it came meanwhile", func(in *input) { in.put(0, nil, true) }, false},
		{"its command has ended", func(in *input) { in.stop() }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var killed atomic.Bool
				in := newInput(func() {}, func() { killed.Store(true) })
				in.feeds()
				in.leaves()
				time.Sleep(feederTime / 2)
				synctest.Wait()
				if killed.Load() {
					t.Fatal("the command was ended before its caller could come back")
				}
				c.after(in)
				time.Sleep(2 * feederTime)
				synctest.Wait()
				if killed.Load() != c.killed || in.isCut() != c.killed {
					t.Errorf("killed: %t, cut: %t; want %t", killed.Load(), in.isCut(), c.killed)
				}
			})
		})
	}
}

// The timer of a broken input kills its command in a separate goroutine.
func TestAPanicOfAnInputThatBreaksOffCostsItOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(starts{}, func() {})
		var said strings.Builder
		k.log.SetOutput(&said)
		m := link.Message{Kind: link.Start, ID: "fed", Command: &link.Command{Stdin: true}}
		dir, err := os.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		m.Files = []*os.File{dir}
		c, _ := k.newCommand(m)
		c.spares = func() { panic("injected") }
		c.supervisor.Store(math.MaxInt32) // no process
		c.in.feeds()
		c.in.leaves()
		time.Sleep(feederTime)
		synctest.Wait()
		if !c.in.isCut() || !strings.Contains(said.String(), "kill command fed: injected") {
			t.Errorf("the input is cut off: %t; process 1 says %q", c.in.isCut(), said.String())
		}
		c.drop()
		link.CloseAll(m.Files)
	})
}
