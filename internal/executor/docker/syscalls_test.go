package docker_test

import "strings"

// commonSyscalls are the calls of a shell and the Go runtime.
var commonSyscalls = strings.Fields(`
accept accept4 access arch_prctl bind brk capget capset chdir chmod chown clock_getres clock_gettime
clock_nanosleep clone clone3 close close_range connect dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
epoll_pwait epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64
fallocate fchdir fchmod fchmodat fchown fchownat fcntl fdatasync flock fstat fstatfs fsync ftruncate futex
getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid
getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid
gettimeofday getuid ioctl kill lchown link linkat listen lseek lstat madvise membarrier memfd_create mkdir
mkdirat mmap mprotect mremap msync munmap nanosleep newfstatat open openat openat2 pause pidfd_open
pidfd_send_signal pipe pipe2 poll ppoll prctl pread64 prlimit64 pselect6 pwrite64 read readlink readlinkat
readv recvfrom recvmsg rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending
rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait sched_getaffinity sched_yield
select sendfile sendmsg sendto set_robust_list set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid
setpriority setresgid setresuid setsid setsockopt setuid shutdown sigaltstack socket socketpair splice
stat statfs statx symlink symlinkat sync sysinfo tgkill time timer_create timer_delete timer_settime
timerfd_create timerfd_gettime timerfd_settime tkill truncate umask uname unlink unlinkat utime utimensat
utimes vfork wait4 waitid write writev`)
