//go:build linux

// Command prober asks the kernel for what a sandbox must not get. It prints each answer.
package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// System calls without a number in package syscall. Those without a case below have the same number on amd64 and arm64.
const (
	sysOpenByHandle = (iota + 1) << 20 // set for each architecture
	sysBPF
	sysKeyctl
	sysAddKey
	sysRequestKey
	sysPerfEvent
	sysUserfault
	sysKexec
	sysKexecFile
	sysFinitModule
	sysSetns
	sysIOSetup
	sysIOSubmit
	sysIOGetEvents
	sysFanotifyInit
	sysVMRead
	sysModifyLDT

	sysIOUringSetup    = 425
	sysIOUringEnter    = 426
	sysIOUringRegister = 427
	sysOpenTree        = 428
	sysMoveMount       = 429
	sysFsopen          = 430
	sysPidfdOpen       = 434
	sysClone3          = 435
	sysPidfdGetfd      = 438
	sysMountSetattr    = 442
	sysUnknown         = 1 << 12
)

var numbers = map[string]map[uintptr]uintptr{
	"amd64": {
		sysOpenByHandle: 304, sysBPF: 321, sysKeyctl: 250, sysAddKey: 248, sysRequestKey: 249, sysPerfEvent: 298, sysUserfault: 323,
		sysKexec: 246, sysKexecFile: 320, sysFinitModule: 313, sysSetns: 308, sysIOSetup: 206, sysIOSubmit: 209, sysIOGetEvents: 208,
		sysFanotifyInit: 300, sysVMRead: 310, sysModifyLDT: 154,
	},
	"arm64": {
		sysOpenByHandle: 265, sysBPF: 280, sysKeyctl: 219, sysAddKey: 217, sysRequestKey: 218, sysPerfEvent: 241, sysUserfault: 282,
		sysKexec: 104, sysKexecFile: 294, sysFinitModule: 273, sysSetns: 268, sysIOSetup: 0, sysIOSubmit: 2, sysIOGetEvents: 4,
		sysFanotifyInit: 262, sysVMRead: 270, sysModifyLDT: sysUnknown,
	},
}

func text(s string) uintptr {
	b := append([]byte(s), 0)
	kept = append(kept, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

var kept [][]byte // memory whose address the kernel got

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
	try("reboot", syscall.SYS_REBOOT, 0xfee1dead, 672274793, 0) // CAD off: harmless if the kernel allows it
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
	probeRequests()
	probeSockets()
	probeNamespaces()
	probeMounts()
	try("ptrace process 1", syscall.SYS_PTRACE, 16, 1, 0, 0)
	try("raise the limit of open files", syscall.SYS_PRLIMIT64, 0, 7, uintptr(unsafe.Pointer(&[2]uint64{1 << 21, 1 << 21})), 0)
	try("allow core dumps", syscall.SYS_PRLIMIT64, 0, 4, uintptr(unsafe.Pointer(&[2]uint64{1 << 20, 1 << 20})), 0)
	try("attach to process 1", syscall.SYS_PTRACE, 0x4206, 1, 0, 0) // PTRACE_SEIZE
	vector := [2]uintptr{text(string(make([]byte, 64))), 64}
	try("read the memory of process 1", sysVMRead, 1, uintptr(unsafe.Pointer(&vector)), 1, uintptr(unsafe.Pointer(&vector)), 1, 0)
	if fd, _, errno := syscall.Syscall(sysPidfdOpen, 1, 0, 0); errno == 0 {
		try("take a file of process 1", sysPidfdGetfd, fd, 0, 0)
	}
	try("personality with readable code", syscall.SYS_PERSONALITY, 0x0400000)
	try("modify_ldt", sysModifyLDT, 0, text(string(make([]byte, 64))), 64)
	try("fanotify_init", sysFanotifyInit, 0, 0)
	try("a call of the future", sysUnknown)
	if err := os.WriteFile("/proc/1/oom_score_adj", []byte("-1000"), 0); err != nil {
		fmt.Println("lower the OOM score: refused:", err)
	} else {
		fmt.Println("lower the OOM score: succeeded")
	}
}

func probeRequests() {
	params := text(string(make([]byte, 120)))
	try("io_uring_setup", sysIOUringSetup, 8, params)
	try("io_uring_enter", sysIOUringEnter, 0, 1, 0, 0, 0)
	try("io_uring_register", sysIOUringRegister, 0, 8, 0, 0) // asks for the abilities of a ring
	var context uintptr
	try("io_setup", sysIOSetup, 1, uintptr(unsafe.Pointer(&context)))
	try("io_submit", sysIOSubmit, context, 0, 0)
	try("io_getevents", sysIOGetEvents, context, 0, 0, 0, 0)
	try("request_key", sysRequestKey, text("user"), text("probe"), 0, ^uintptr(2))
	try("kexec_file_load", sysKexecFile, ^uintptr(0), ^uintptr(0), 0, 0, 0)
}

func probeSockets() {
	const vsock, alg, key, bluetooth, can, tipc, xdp = 40, 38, 15, 31, 29, 30, 44
	const audit, netfilter, generic = 9, 12, 16
	try("vsock stream", syscall.SYS_SOCKET, vsock, syscall.SOCK_STREAM, 0)
	try("vsock datagram", syscall.SYS_SOCKET, vsock, syscall.SOCK_DGRAM, 0)
	try("vsock by a number that the kernel cuts off", syscall.SYS_SOCKET, 1<<32|vsock, syscall.SOCK_STREAM, 0)
	try("pair of vsocks", syscall.SYS_SOCKETPAIR, vsock, syscall.SOCK_STREAM, 0, text("        "))
	try("alg", syscall.SYS_SOCKET, alg, syscall.SOCK_SEQPACKET, 0)
	try("key socket", syscall.SYS_SOCKET, key, syscall.SOCK_RAW, 2)
	try("bluetooth", syscall.SYS_SOCKET, bluetooth, syscall.SOCK_RAW, 1)
	try("can", syscall.SYS_SOCKET, can, syscall.SOCK_RAW, 1)
	try("tipc", syscall.SYS_SOCKET, tipc, syscall.SOCK_DGRAM, 0)
	try("xdp", syscall.SYS_SOCKET, xdp, syscall.SOCK_RAW, 0)
	try("netlink to netfilter", syscall.SYS_SOCKET, syscall.AF_NETLINK, syscall.SOCK_RAW, netfilter)
	try("netlink to anything", syscall.SYS_SOCKET, syscall.AF_NETLINK, syscall.SOCK_RAW, generic)
	try("netlink to the audit", syscall.SYS_SOCKET, syscall.AF_NETLINK, syscall.SOCK_RAW, audit)
}

// probeNamespaces tries to create each namespace in each way.
func probeNamespaces() {
	for name, flag := range map[string]uintptr{
		"mount": 0x00020000, "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000,
	} {
		try("unshare "+name+" namespace", syscall.SYS_UNSHARE, flag)
		try("clone "+name+" namespace", syscall.SYS_CLONE, flag|uintptr(syscall.SIGCHLD), 0)
		try("clone3 "+name+" namespace", sysClone3, uintptr(unsafe.Pointer(&[8]uint64{0: uint64(flag), 4: uint64(syscall.SIGCHLD)})), 64)
	}
	try("unshare time namespace", syscall.SYS_UNSHARE, 0x80)
	if fd, _, errno := syscall.Syscall(sysPidfdOpen, 1, 0, 0); errno == 0 {
		try("setns by process 1", sysSetns, fd, 0x20000000)
	}
}

func probeMounts() {
	const atCwd = ^uintptr(99) // AT_FDCWD
	try("fsopen", sysFsopen, text("tmpfs"), 0)
	try("open_tree", sysOpenTree, atCwd, text("/workspace"), 1)
	try("move_mount", sysMoveMount, atCwd, text("/workspace"), atCwd, text("/data"), 0)
	try("mount_setattr", sysMountSetattr, atCwd, text("/workspace"), 0, text(string(make([]byte, 32))), 32)
	try("quotactl", syscall.SYS_QUOTACTL, 0x800001<<8, 0, 0, 0) // Q_SYNC for all file systems
}
