package guest_test

import (
	"bytes"
	"debug/elf"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

func TestBinaryIsStaticAndOfItsArchitecture(t *testing.T) {
	t.Parallel()
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		b, err := guest.Binary(arch)
		if err != nil {
			t.Fatal(err)
		}
		f, err := elf.NewFile(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", arch, err)
		}
		if f.Machine != machine {
			t.Errorf("%s: is for %s", arch, f.Machine)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s: needs a dynamic linker, which an image FROM scratch has not", arch)
			}
		}
	}
}

func TestBinaryOfAnotherArchitectureIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := guest.Binary("riscv64"); err == nil {
		t.Error("there is a guest for riscv64")
	}
}
