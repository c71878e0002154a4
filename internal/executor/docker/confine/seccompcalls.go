package confine

import (
	"slices"
	"strings"
)

// The names that Docker's default profile allows to a container without capabilities (documented at
// docs.docker.com/engine/security/seccomp; profiles/seccomp of moby, read on 2026-11-22), without those of
// 32-bit entry points and those in absentCalls. A runtime ignores names that its libseccomp does not know.
var allowedCalls = slices.Concat(
	// files and directories
	strings.Fields(`
		access cachestat chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2
		fadvise64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync flock fstat
		fstatfs fsync ftruncate futimesat getcwd getdents getdents64 inotify_add_watch inotify_init inotify_init1
		inotify_rm_watch ioctl lchown link linkat listmount lseek lstat mkdir mkdirat mknod mknodat name_to_handle_at
		newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink
		readlinkat readv rename renameat renameat2 rmdir sendfile splice stat statfs statmount statx symlink symlinkat
		sync sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev`),
	// extended attributes
	strings.Fields(`
		fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr listxattrat llistxattr
		lremovexattr lsetxattr removexattr removexattrat setxattr setxattrat`),
	// memory
	strings.Fields(`
		brk madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mprotect
		mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_mrelease
		remap_file_pages`),
	// processes, threads, signals
	strings.Fields(`
		alarm arch_prctl execve execveat exit exit_group fork futex futex_requeue futex_wait futex_waitv futex_wake
		get_robust_list getcpu getitimer getpgid getpgrp getpid getppid getpriority getrlimit getrusage getsid gettid
		ioprio_get ioprio_set kill pause pidfd_open pidfd_send_signal prctl prlimit64 restart_syscall riscv_hwprobe rseq
		rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
		rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
		sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler
		sched_yield set_robust_list set_tid_address setitimer setpgid setpriority setrlimit setsid sigaltstack signalfd
		signalfd4 tgkill times tkill uretprobe vfork wait4 waitid`),
	// identity (subject to capabilities), and filters that programs set themselves
	strings.Fields(`
		capget capset getegid geteuid getgid getgroups getresgid getresuid getuid landlock_add_rule
		landlock_create_ruleset landlock_restrict_self seccomp setfsgid setfsuid setgid setgroups setregid setresgid
		setresuid setreuid setuid`),
	// waiting and time
	strings.Fields(`
		adjtimex clock_adjtime clock_getres clock_gettime clock_nanosleep epoll_create epoll_create1 epoll_ctl epoll_pwait
		epoll_pwait2 epoll_wait eventfd eventfd2 gettimeofday nanosleep poll ppoll pselect6 select time timer_create
		timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime`),
	// inter-process communication; socket and socketpair have their own rules
	strings.Fields(`
		accept accept4 bind connect getpeername getsockname getsockopt listen mq_getsetattr mq_notify mq_open
		mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd pipe pipe2 recvfrom recvmmsg recvmsg semctl
		semget semop semtimedop sendmmsg sendmsg sendto setsockopt shmat shmctl shmdt shmget shutdown`),
	// the system
	strings.Fields(`getrandom sysinfo uname`),
)

// tracingCalls affect processes of the same user, unless those forbid it. Debuggers and the guest need them.
var tracingCalls = strings.Fields(`process_vm_readv process_vm_writev ptrace`)

// forbiddenCalls need a privilege that no sandbox has, or escape from it. Programs handle EPERM for them.
var forbiddenCalls = strings.Fields(`
	acct add_key bpf chroot clock_settime delete_module fanotify_init finit_module fsconfig fsmount fsopen fspick
	init_module ioperm iopl kexec_file_load kexec_load keyctl lookup_dcookie mount mount_setattr move_mount
	open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_madvise quotactl quotactl_fd reboot
	request_key setdomainname sethostname setns settimeofday swapoff swapon syslog umount umount2 unshare userfaultfd
	vhangup`)

// absentCalls look unimplemented, so that programs do without them.
//   - A filter cannot see the arguments of clone3. Threads and processes are created with clone.
//   - Asynchronous I/O (io_uring, aio) has had many kernel bugs, and one sandbox can use up the whole host's
//     limit (fs.aio-max-nr).
//   - modify_ldt serves 16-bit and 32-bit programs; the rest need capabilities.
var absentCalls = strings.Fields(`
	clone3
	io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit
	io_uring_enter io_uring_register io_uring_setup
	get_mempolicy kcmp mbind modify_ldt set_mempolicy set_mempolicy_home_node`)

// namespaceFlags are the flags of clone that create namespaces: mount, cgroup, UTS, IPC, user, pid and
// network (linux/sched.h). Time namespaces need clone3 or unshare.
var namespaceFlags = []uint64{0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000}

func anyNamespace() (mask uint64) {
	for _, flag := range namespaceFlags {
		mask |= flag
	}
	return mask
}

// Socket families (linux/socket.h) and netlink protocols (linux/netlink.h).
const (
	familyUnix    = 1
	familyINET    = 2
	familyINET6   = 10
	familyNetlink = 16
	netlinkRoute  = 0
)

// Allowed arguments of personality: Linux, and the query (linux/personality.h).
const (
	personaLinux = 0
	personaQuery = 0xffffffff
)

// linuxErrno is a Linux error number (asm-generic/errno.h). This program may run on another system.
type linuxErrno uint

const (
	eperm           linuxErrno = 1
	enosys          linuxErrno = 38
	eprotonosupport linuxErrno = 93
	eafnosupport    linuxErrno = 97
)
