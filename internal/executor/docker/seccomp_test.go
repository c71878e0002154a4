package docker_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// i386Program is compiled for a 32-bit processor.
const i386Program = `package main

func main() { println("it runs") }
`

// Machine code for amd64. The first three call getpid: two through a foreign entry point, "none" through the native
// one. Then "exit" ends the program with code 0.
var foreignEntries = map[string][]byte{
	"int 0x80": {0xb8, 20, 0, 0, 0, 0xcd, 0x80},    // mov eax, 20; int 0x80
	"x32":      {0xb8, 39, 0, 0, 0x40, 0x0f, 0x05}, // mov eax, 0x40000000 + 39; syscall
	"none":     {0xb8, 39, 0, 0, 0, 0x0f, 0x05},    // mov eax, 39; syscall
	// xor edi, edi; mov eax, 60; syscall; jmp to itself.
	"exit": {0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xfe},
}

// elf is the smallest 64-bit program with this code.
func elf(t *testing.T, code []byte) []byte {
	t.Helper()
	const base, headers = 0x400000, 64 + 56
	size := uint64(headers + len(code))
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	for _, field := range []any{
		uint16(2), uint16(62), uint32(1), uint64(base + headers), uint64(64), uint64(0), uint32(0), // an executable for amd64
		uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		// One segment, readable and executable.
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		must(t, binary.Write(&b, binary.LittleEndian, field))
	}
	return append(b.Bytes(), code...)
}

// runs reports whether a program runs on this machine outside of a sandbox.
func runs(t *testing.T, program []byte) bool {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	must(t, os.WriteFile(file, program, 0o700))
	return exec.CommandContext(t.Context(), file).Run() == nil
}

// TestForeignEntryPointsOfTheKernelAreClosed runs programs that enter the kernel like programs for a 32-bit processor.
func TestForeignEntryPointsOfTheKernelAreClosed(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("the programs are for amd64")
	}
	w := newWorld(t, dockertest.Busybox(t))
	h := w.spawn(t)
	programs := map[string][]byte{"i386": executortest.Compile(t, i386Program, "GOARCH=386")}
	for _, name := range []string{"int 0x80", "x32", "none"} {
		programs[name] = elf(t, append(bytes.Clone(foreignEntries[name]), foreignEntries["exit"]...))
	}
	for name, program := range programs {
		// A kernel that was built without an entry point refuses it before the profile applies.
		closed := !runs(t, program)
		if closed {
			t.Logf("this machine's kernel has no entry %s", name)
		}
		r, err := sandbox.ExecRequest{Stdin: bytes.NewReader(program), Command: []string{"sh", "-c",
			"cd /workspace; cat > program; chmod 755 program; ./program >/dev/null 2>&1; echo $?"}}.Normalize()
		must(t, err)
		res, err := w.x.Exec(t.Context(), h, r)
		must(t, err)
		want := strconv.Itoa(128+31) + "\n" // SIGSYS
		if name == "none" {
			want = "0\n"
		}
		if got := string(res.Stdout); got != want && (name == "none" || !closed || got == "0\n") {
			t.Errorf("%s: exit code %q, want %q (%s)", name, got, want, res.Stderr)
		}
	}
}

// TestSandboxesAndGatewaysHaveTheProfile reads the profile with which sandboxes and gateways were created.
func TestSandboxesAndGatewaysHaveTheProfile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	spec := w.environment()
	spec.Network = sandbox.NetworkRestricted
	must(t, w.x.Provision(t.Context(), w.ref, spec))
	h := w.spawn(t)
	for _, of := range []string{name(h), "sandbox-" + w.ref.LedgerID + "-env-" + w.ref.EnvironmentID + "-gateway"} {
		c, err := dockertest.Engine(t).ContainerInspect(t.Context(), of)
		must(t, err)
		options := strings.Join(c.HostConfig.SecurityOpt, "\n")
		if !strings.Contains(options, "seccomp={") {
			t.Errorf("%s was made with %s", of, options)
		}
	}
}
