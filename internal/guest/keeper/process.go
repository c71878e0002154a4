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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/cgroup"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/disk"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/fork"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/identity"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/threads"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// exitDeadline is the exit code of a sandbox that reached its deadline, exitStopped of a stopped one.
	exitDeadline = 124
	exitStopped  = 143
	// readyName is the name of process 1 once commands may run. It fits into the 15 bytes of comm.
	readyName = "sandbox-ready"
	// nice gives commands a lower priority than process 1 and its broker.
	nice = 10
	// reserve is the number of the sandbox's processes that its user may not use: threads of process 1 and
	// its broker, the starter, and supervisors.
	reserve = 24
	// spare is the number of threads that process 1 keeps in reserve, in case the sandbox uses up its processes.
	spare = 8
	// endPause is the interval at which process 1 looks for the file that ends the sandbox.
	endPause = time.Second
	// deliverTime is how long a stopping sandbox gives the broker to send the results of commands.
	deliverTime = 500 * time.Millisecond
)

// Config is the configuration of process 1, from the engine.
type Config struct {
	UID, GID int
	Ends     wire.Ends
	Config   string // content of config.json
	Egress   string // wire.Egress as JSON, "" for none
	Pooled   bool   // the sandbox waits for its lease
	Disk     int64  // bytes, 0 for no limit
	PIDs     int    // process limit of the sandbox, 0 if unknown
	OwnUID   bool   // the sandbox has a separate user
	// AllowRoot means that commands may run as user 0.
	AllowRoot bool
	Channel   string
	Port      int    // port to listen on instead of the channel's socket; 0 for none
	Life      string // for a broker only: the life id that its keeper chose
	Main      string // id of the command whose end ends a companion; "" in a sandbox
}

// Run runs process 1. It returns only if it cannot start; otherwise it exits the process.
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
	// The kernel reaps orphaned children of process 1.
	signal.Ignore(unix.SIGCHLD)
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE, unix.SIGXFSZ, unix.SIGHUP) // they must not end the process
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
	starter, err := fork.NewStarter() // fork now, while this process has little memory
	if err != nil {
		return fmt.Errorf("fork the starter of commands: %w", err)
	}
	p := &process{cfg: cfg, door: way, timer: timer, stop: stop, starter: starter}
	if p.null, err = os.Open(os.DevNull); err != nil {
		return err
	}
	return p.run()
}

// prepare does everything that needs user 0, and then drops it.
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

// as runs work on files as a user of the sandbox.
func (cfg Config) as(uid, gid int, work func() error) error {
	err := identity.Do(uid, gid, work)
	return errors.Join(err, ownProc(cfg))
}

// create creates a file without a name for output, as the sandbox's user.
func (cfg Config) create(onDisk int64) (file *os.File, limit int64, err error) {
	err = cfg.as(cfg.UID, cfg.GID, func() (err error) {
		file, limit, err = output.NamelessFile(onDisk)
		return err
	})
	if err != nil && file != nil {
		err = errors.Join(err, file.Close())
	}
	return file, limit, err
}

// ownProc protects /proc/1 from sandbox code. If a process is not dumpable, its files there belong to user 0. That is
// fine unless the sandbox may run as user 0. In that case process 1 is dumpable, and the files belong to its user,
// which sandbox code never has. Without capabilities, user 0 cannot trace a process of another user, dumpable or not. A
// change of a thread's identity makes the process non-dumpable, so this must follow each change.
func ownProc(cfg Config) error { return setDumpable(cfg.UID == 0 || cfg.AllowRoot) }

// process is process 1 after it has dropped its privileges.
type process struct {
	cfg       Config
	door      *door // nil: no port
	timer     *deadline.Timer
	stop      chan os.Signal
	starter   *fork.Starter
	null      *os.File
	keeper    *keeper
	assigned  assignment
	diskEnded atomic.Int64
}

func (p *process) run() error {
	p.keeper = newKeeper(starts{
		starter: p.starter, null: p.null, nice: nice, score: scoreAbove(), processes: p.processes, pids: p.cfg.PIDs,
		diskEnded: func() time.Duration { return time.Duration(p.diskEnded.Load()) },
		oomKills:  cgroup.OpenOOMKills(),
		as:        p.cfg.as,
		create:    p.cfg.create,
	}, func() { os.Exit(exitStopped) })
	p.keeper.assign = p.assign
	p.keeper.main, p.keeper.ends = p.cfg.Main, p.endWith
	if p.cfg.Pooled {
		if err := p.resume(); err != nil {
			return err
		}
	}
	if p.cfg.Disk > 0 {
		p.watchDisk()
	}
	go p.awaitEnd() // both goroutines end with the process
	go p.keeper.keepBroker(p.runBroker)
	if err := setName(readyName); err != nil {
		return err
	}
	<-p.stop
	p.terminate()
	os.Exit(exitStopped)
	return nil
}

// processes returns the process limit for a user, 0 for none. The kernel counts a user's processes on the
// whole host, so it is set only for a separate user.
func (p *process) processes(uid int) uint64 {
	verifier, own := sandbox.Identity{UID: p.cfg.UID, GID: p.cfg.GID, Own: p.cfg.OwnUID}.Verifier()
	if !own || p.cfg.PIDs <= 0 || uid != p.cfg.UID && uid != verifier {
		return 0
	}
	return uint64(max(p.cfg.PIDs-reserve, p.cfg.PIDs/2, 1))
}

// awaitEnd ends the sandbox once the relay has written the end file.
func (p *process) awaitEnd() {
	if p.cfg.Channel == "" {
		return
	}
	end := filepath.Join(filepath.Dir(p.cfg.Channel), endFile)
	for ; ; time.Sleep(endPause) {
		p.keeper.guard("look for the end file", func() {
			if _, err := os.Lstat(end); err == nil {
				os.Exit(exitStopped)
			}
		})
	}
}

// terminate asks programs to end, and gives the broker time to send their results.
func (p *process) terminate() {
	k := p.keeper
	k.endVerifiers() // stopped programs cannot end on their own
	for _, pid := range k.freezer.programs() {
		_ = unix.Kill(pid, unix.SIGTERM) // a process that is gone has ended
	}
	for limit := time.Now().Add(stopGrace); time.Now().Before(limit) && len(k.freezer.programs()) > 0; {
		time.Sleep(20 * time.Millisecond)
	}
	for limit := time.Now().Add(deliverTime); time.Now().Before(limit) && k.attached(); {
		time.Sleep(5 * time.Millisecond)
	}
}

// watchDisk enforces the disk limit, on a thread with the sandbox's file-system identity.
func (p *process) watchDisk() {
	ready := make(chan error)
	go func() { // it ends with the process
		runtime.LockOSThread()
		err := identity.Take(p.cfg.UID, p.cfg.GID)
		ready <- errors.Join(err, ownProc(p.cfg))
		for ; ; time.Sleep(time.Second) {
			p.keeper.guard("watch the disk", func() {
				disk.Watch(disk.Limits{
					Bytes: p.cfg.Disk, Roots: sandbox.Roots, As: disk.Identity{UID: p.cfg.UID, GID: p.cfg.GID},
					Writers: p.programs, Holders: p.programs,
					Measured: p.keeper.measured,
					Ended:    func(sinceBoot time.Duration) { p.diskEnded.Store(int64(sinceBoot)) },
					Shut:     p.keeper.freezer.shut,
				})
			})
		}
	}()
	if err := <-ready; err != nil {
		fmt.Fprintln(os.Stderr, "keeper: enforce the disk limit:", err)
		os.Exit(1)
	}
}

// programs returns the processes to end, whose open files count. The broker is none of them: see files.Space.
func (p *process) programs() []int { return p.keeper.freezer.programs() }

const (
	minBackoff, maxBackoff = 50 * time.Millisecond, time.Second
	// settled is how long a broker must run for an immediate restart.
	settled = 10 * time.Second
)

// keepBroker keeps a broker running. run runs one until it ends.
func (k *keeper) keepBroker(run func() error) {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		began := time.Now()
		k.guard("run the broker", func() {
			if err := run(); err != nil {
				k.logf("start the broker: %v", err)
			}
		})
		if time.Since(began) > settled {
			backoff = minBackoff
		}
		time.Sleep(backoff)
	}
}

// runBroker runs a broker until it ends or stops answering.
func (p *process) runBroker() error {
	conn, other, err := link.Pair()
	if err != nil {
		return err
	}
	pid, err := startBroker(other, p.null, p.door, []string{
		"guest", "broker", "-uid", strconv.Itoa(p.cfg.UID), "-gid", strconv.Itoa(p.cfg.GID),
		"-allow-root=" + strconv.FormatBool(p.cfg.AllowRoot), "-own-uid=" + strconv.FormatBool(p.cfg.OwnUID),
		"-life", p.keeper.life, "-channel", p.cfg.Channel, "-egress", p.cfg.Egress, "-port", strconv.Itoa(p.cfg.Port),
	})
	if err = errors.Join(err, other.Close()); err != nil {
		return errors.Join(err, conn.Close())
	}
	p.keeper.broker.Store(int64(pid))
	defer p.keeper.broker.Store(0)
	defer unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // it has ended or no longer answers
	p.keeper.serve(conn)
	return nil
}
