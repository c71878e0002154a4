//go:build linux

// Command prober asks the kernel for what a sandbox must not get, and prints each answer.
package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// System calls that package syscall has no numbers for, alike on amd64 and arm64 where they have no case below.
const (
	sysOpenByHandle = 1 << 20 // set for each architecture
	sysBPF          = 2 << 20
	sysKeyctl       = 3 << 20
	sysAddKey       = 4 << 20
	sysPerfEvent    = 5 << 20
	sysUserfault    = 6 << 20
	sysKexec        = 7 << 20
	sysFinitModule  = 8 << 20
	sysSetns        = 9 << 20
)

var numbers = map[string]map[uintptr]uintptr{
	"amd64": {sysOpenByHandle: 304, sysBPF: 321, sysKeyctl: 250, sysAddKey: 248, sysPerfEvent: 298, sysUserfault: 323, sysKexec: 246, sysFinitModule: 313, sysSetns: 308},
	"arm64": {sysOpenByHandle: 265, sysBPF: 280, sysKeyctl: 219, sysAddKey: 217, sysPerfEvent: 241, sysUserfault: 282, sysKexec: 104, sysFinitModule: 273, sysSetns: 268},
}

func text(s string) uintptr {
	b := append([]byte(s), 0)
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

var kept [][]byte // what the kernel was given pointers to

func try(name string, number uintptr, args ...uintptr) {
	if own, ok := numbers[runtime.GOARCH][number]; ok {
		number = own
	}
	args = append(args, make([]uintptr, 6-len(args))...)
	result, _, errno := syscall.Syscall6(number, args[0], args[1], args[2], args[3], args[4], args[5])
	if errno != 0 {
		fmt.Printf("%s: refused: %v\n", name, errno)
		return
	}
	fmt.Printf("%s: succeeded with %d\n", name, result)
}

func open(p string) uintptr {
	fd, err := syscall.Open(p, syscall.O_RDONLY, 0)
	if err != nil {
		return ^uintptr(0)
	}
	return uintptr(fd)
}

func main() {
	runtime.LockOSThread()
	const (
		newUser, newNS, newPID, newNet = 0x10000000, 0x00020000, 0x20000000, 0x40000000
		bind, remount                  = 0x1000, 0x20
		atCwd                          = ^uintptr(99) // AT_FDCWD
	)
	if err := os.MkdirAll("/workspace/probe", 0o755); err != nil {
		fmt.Println("prepare:", err)
		os.Exit(1)
	}
	try("mount tmpfs", syscall.SYS_MOUNT, text("none"), text("/workspace/probe"), text("tmpfs"), 0, 0)
	try("mount proc", syscall.SYS_MOUNT, text("proc"), text("/workspace/probe"), text("proc"), 0, 0)
	try("bind /", syscall.SYS_MOUNT, text("/"), text("/workspace/probe"), 0, bind, 0)
	try("remount / writable", syscall.SYS_MOUNT, text("none"), text("/"), 0, remount|bind, 0)
	try("unmount /proc/kcore", syscall.SYS_UMOUNT2, text("/proc/kcore"), 2)
	try("pivot_root", syscall.SYS_PIVOT_ROOT, text("/workspace"), text("/workspace/probe"))
	try("chroot", syscall.SYS_CHROOT, text("/workspace"))
	try("unshare user namespace", syscall.SYS_UNSHARE, newUser)
	try("unshare mounts", syscall.SYS_UNSHARE, newNS)
	try("unshare network", syscall.SYS_UNSHARE, newNet)
	try("clone user namespace", syscall.SYS_CLONE, newUser|newPID|uintptr(syscall.SIGCHLD), 0)
	try("setns of process 1", sysSetns, open("/proc/1/ns/mnt"), 0)
	try("mknod block device", syscall.SYS_MKNODAT, atCwd, text("/workspace/probe/sda"), syscall.S_IFBLK|0o600, 8<<8)
	try("mknod character device", syscall.SYS_MKNODAT, atCwd, text("/workspace/probe/mem"), syscall.S_IFCHR|0o600, 1<<8|1)
	try("open_by_handle_at", sysOpenByHandle, open("/workspace"), text("\x08\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00"), 0)
	try("setuid 0", syscall.SYS_SETUID, 0)
	try("setgid 0", syscall.SYS_SETGID, 0)
	try("sethostname", syscall.SYS_SETHOSTNAME, text("probe"), 5)
	try("settimeofday", syscall.SYS_SETTIMEOFDAY, uintptr(unsafe.Pointer(&syscall.Timeval{Sec: 1})), 0)
	try("reboot", syscall.SYS_REBOOT, 0xfee1dead, 672274793, 0) // CAD off: harmless where it is not refused
	try("swapon", syscall.SYS_SWAPON, text("/workspace/probe"), 0)
	try("acct", syscall.SYS_ACCT, text("/workspace/probe/acct"))
	try("keyctl", sysKeyctl, 0, ^uintptr(2), 1)
	try("add_key", sysAddKey, text("user"), text("probe"), text("x"), 1, ^uintptr(2))
	try("bpf", sysBPF, 0, text("\x01\x00\x00\x00\x04\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), 20)
	try("perf_event_open", sysPerfEvent, text("\x01\x00\x00\x00\x70\x00\x00\x00"+string(make([]byte, 104))), 0, ^uintptr(0), ^uintptr(0), 0)
	try("userfaultfd", sysUserfault, 0)
	try("kexec_load", sysKexec, 0, 0, 0, 0)
	try("finit_module", sysFinitModule, open("/workspace"), text(""), 0)
	try("raw socket", syscall.SYS_SOCKET, syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP)
	try("ping socket", syscall.SYS_SOCKET, syscall.AF_INET, syscall.SOCK_DGRAM, syscall.IPPROTO_ICMP)
	try("packet socket", syscall.SYS_SOCKET, syscall.AF_PACKET, syscall.SOCK_RAW, 0x0300)
	try("ptrace process 1", syscall.SYS_PTRACE, 16, 1, 0, 0)
	try("raise the limit of open files", syscall.SYS_PRLIMIT64, 0, 7, uintptr(unsafe.Pointer(&[2]uint64{1 << 21, 1 << 21})), 0)
	try("allow core dumps", syscall.SYS_PRLIMIT64, 0, 4, uintptr(unsafe.Pointer(&[2]uint64{1 << 20, 1 << 20})), 0)
	if err := os.WriteFile("/proc/1/oom_score_adj", []byte("-1000"), 0); err != nil {
		fmt.Println("lower the OOM score: refused:", err)
	} else {
		fmt.Println("lower the OOM score: succeeded")
	}
}
