//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/disk"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/identity"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/threads"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// exitDeadline is the exit code of a sandbox that reached its deadline, exitStopped of one that was stopped.
	exitDeadline = 124
	exitStopped  = 143
	// readyName is the name that process 1 takes once commands may run; it fits the 15 bytes of comm.
	readyName = "sandbox-ready"
	// nice lowers the priority of commands below that of process 1 and its broker.
	nice = 10
	// reserve is how many of the sandbox's processes its own user may not have: threads of process 1 and its broker, and
	// supervisors.
	reserve = 24
	// spare is how many threads process 1 keeps for when the sandbox has used up its processes.
	spare = 8
	// endPause is how often process 1 looks for the file that ends the sandbox.
	endPause = time.Second
	// deliverTime is what the broker gets to send how commands have ended when the sandbox stops.
	deliverTime = 500 * time.Millisecond
)

// Config is what the engine tells process 1.
type Config struct {
	UID, GID int
	Ends     wire.Ends
	Config   string // content of config.json
	Egress   string // wire.Egress as JSON, "" without
	Pooled   bool   // it waits for its lease
	Disk     int64  // bytes, 0 without a limit
	PIDs     int    // of the sandbox, 0 when not known
	OwnUID   bool   // no other sandbox has the user
	// AllowRoot: commands may run as user 0.
	AllowRoot bool
	Channel   string
	Port      int    // the port to listen to, in place of a channel's socket; 0 for none
	Life      string // of a broker only: what its keeper has chosen
}

// Run is process 1. It returns an error when it cannot start, and never otherwise: it exits.
func Run(cfg Config) error {
	runtime.LockOSThread() // the first thread's name is the process's
	var way *door
	if cfg.Port != 0 {
		var err error
		if way, err = openDoor(cfg.Port); err != nil {
			return err
		}
	}
	if err := setDumpable(false); err != nil {
		return fmt.Errorf("become non-dumpable: %w", err)
	}
	signal.Ignore(unix.SIGCHLD)                                                     // the kernel reaps what is left to process 1
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE, unix.SIGXFSZ, unix.SIGHUP) // no reason to end
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	clocks, err := deadline.ReadClocks()
	if err != nil {
		return err
	}
	timer, err := deadline.Arm(clocks.Left(cfg.Ends), func() { os.Exit(exitDeadline) })
	if err != nil {
		return err
	}
	threads.Spare(spare)
	if err := prepare(cfg); err != nil {
		return err
	}
	p := &process{cfg: cfg, door: way, timer: timer, stop: stop}
	if p.null, err = os.Open(os.DevNull); err != nil {
		return err
	}
	return p.run()
}

// prepare does all that needs user 0, and drops it.
func prepare(cfg Config) error {
	to := owner{cfg.UID, cfg.GID}
	if err := noNewPrivileges(); err != nil {
		return err
	}
	for _, root := range sandbox.Roots {
		if err := handOver(root, to); err != nil {
			return err
		}
	}
	if err := restoreModes(modes, to); err != nil {
		return err
	}
	if cfg.Pooled {
		if err := ownLeaseDir(guest.LeaseDir); err != nil {
			return err
		}
	}
	if err := drop(keptFor(cfg)); err != nil {
		return err
	}
	if err := cfg.as(cfg.UID, cfg.GID, func() error { return writeConfig(cfg.Config) }); err != nil {
		return fmt.Errorf("write %s: %w", configFile, err)
	}
	return ownProc(cfg)
}

// as does work on files as a user of the sandbox.
func (cfg Config) as(uid, gid int, work func() error) error {
	err := identity.Do(uid, gid, work)
	return errors.Join(err, ownProc(cfg))
}

// ownProc keeps code of the sandbox out of /proc/1. What is not dumpable belongs to user 0 there: good, unless that is the
// sandbox's own. Then process 1 is dumpable, and the files belong to its user, as whom no code of the sandbox runs. Without
// capabilities, user 0 cannot trace a process of another user, dumpable or not. A change of a thread's identity makes the
// process non-dumpable, so this follows each.
func ownProc(cfg Config) error { return setDumpable(cfg.UID == 0 || cfg.AllowRoot) }

// process is process 1 once it has dropped its privileges.
type process struct {
	cfg       Config
	door      *door // nil without a port
	timer     *deadline.Timer
	stop      chan os.Signal
	null      *os.File
	keeper    *keeper
	assigned  assignment
	diskEnded atomic.Int64
}

func (p *process) run() error {
	p.keeper = newKeeper(starts{
		null: p.null, nice: nice, score: scoreAbove(), processes: p.processes, pids: p.cfg.PIDs,
		diskEnded: func() time.Duration { return time.Duration(p.diskEnded.Load()) },
		as:        p.cfg.as,
	}, nil, func() { os.Exit(exitStopped) })
	p.keeper.assign = p.assign
	if p.cfg.Pooled {
		if err := p.resume(); err != nil {
			return err
		}
	}
	if p.cfg.Disk > 0 {
		p.watchDisk()
	}
	go p.awaitEnd() // both end with the process
	go p.keepBroker()
	if err := setName(readyName); err != nil {
		return err
	}
	<-p.stop
	p.terminate()
	os.Exit(exitStopped)
	return nil
}

// processes returns how many processes a user may have, 0 for no limit. It counts on the whole host, so it is set for a
// user that no other sandbox has.
func (p *process) processes(uid int) uint64 {
	verifier, own := sandbox.Identity{UID: p.cfg.UID, GID: p.cfg.GID, Own: p.cfg.OwnUID}.Verifier()
	if !own || p.cfg.PIDs <= 0 || uid != p.cfg.UID && uid != verifier {
		return 0
	}
	return uint64(max(p.cfg.PIDs-reserve, p.cfg.PIDs/2, 1))
}

// awaitEnd ends the sandbox once the relay has written the file for that.
func (p *process) awaitEnd() {
	if p.cfg.Channel == "" {
		return
	}
	end := filepath.Join(filepath.Dir(p.cfg.Channel), endFile)
	for ; ; time.Sleep(endPause) {
		if _, err := os.Lstat(end); err == nil {
			os.Exit(exitStopped)
		}
	}
}

// terminate asks programs to end, and lets the broker say how they did.
func (p *process) terminate() {
	k := p.keeper
	k.endVerifiers() // what is stopped does not end by itself
	for _, pid := range k.still.programs() {
		_ = unix.Kill(pid, unix.SIGTERM) // one that is gone has ended
	}
	for limit := time.Now().Add(stopGrace); time.Now().Before(limit) && len(k.still.programs()) > 0; {
		time.Sleep(20 * time.Millisecond)
	}
	for limit := time.Now().Add(deliverTime); time.Now().Before(limit) && k.attached(); {
		time.Sleep(5 * time.Millisecond)
	}
}

// watchDisk bounds what the sandbox keeps, on a thread with its file-system identity.
func (p *process) watchDisk() {
	ready := make(chan error)
	go func() { // ends with the process
		runtime.LockOSThread()
		err := identity.Take(p.cfg.UID, p.cfg.GID)
		ready <- errors.Join(err, ownProc(p.cfg))
		disk.Watch(disk.Limits{
			Bytes: p.cfg.Disk, Roots: sandbox.Roots, Writers: p.programs, Holders: p.programs,
			Ended: func(sinceBoot time.Duration) { p.diskEnded.Store(int64(sinceBoot)) },
			Shut:  p.keeper.still.shut,
		})
	}()
	if err := <-ready; err != nil {
		fmt.Fprintln(os.Stderr, "keeper: bound the disk:", err)
		os.Exit(1)
	}
}

// programs are those of the sandbox. The broker's files count: it writes into the sandbox for the reconciler.
func (p *process) programs() []int { return p.keeper.still.programs() }

const (
	minBackoff, maxBackoff = 50 * time.Millisecond, time.Second
	// settled is how long a broker runs before the next restart is at once again.
	settled = 10 * time.Second
)

// keepBroker keeps a broker running.
func (p *process) keepBroker() {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		began := time.Now()
		if err := p.runBroker(); err != nil {
			p.keeper.logf("start the broker: %v", err)
		}
		if time.Since(began) > settled {
			backoff = minBackoff
		}
		time.Sleep(backoff)
	}
}

// runBroker runs a broker until it ends, or stops speaking.
func (p *process) runBroker() error {
	conn, other, err := link.Pair()
	if err != nil {
		return err
	}
	pid, err := startBroker(other, p.null, p.door, []string{
		"guest", "broker", "-uid", strconv.Itoa(p.cfg.UID), "-gid", strconv.Itoa(p.cfg.GID), "-allow-root=" + strconv.FormatBool(p.cfg.AllowRoot),
		"-own-uid=" + strconv.FormatBool(p.cfg.OwnUID),
		"-life", p.keeper.life, "-channel", p.cfg.Channel, "-egress", p.cfg.Egress, "-port", strconv.Itoa(p.cfg.Port),
	})
	if err = errors.Join(err, other.Close()); err != nil {
		return errors.Join(err, conn.Close())
	}
	p.keeper.broker.Store(int64(pid))
	p.keeper.serve(conn)
	_ = unix.Kill(pid, unix.SIGKILL) // it has ended, or says nothing any more
	p.keeper.broker.Store(0)
	return nil
}
