package confine

import (
	"encoding/json"
	"fmt"
)

// SeccompOption is the prefix of the security option with a profile.
const SeccompOption = "seccomp="

// seccompProfile is a profile in the engine's format, as for `docker run --security-opt seccomp=<file>`.
type seccompProfile struct {
	DefaultAction string `json:"defaultAction"`
	// Engines before 23 ignore this field and answer EPERM.
	DefaultErrno *linuxErrno    `json:"defaultErrnoRet,omitempty"`
	ArchMap      []seccompArch  `json:"archMap"`
	Syscalls     []*seccompRule `json:"syscalls"`
}

// seccompArch is an architecture and those that share its kernel.
type seccompArch struct {
	Architecture string   `json:"architecture"`
	Sub          []string `json:"subArchitectures"`
}

type seccompRule struct {
	Names    []string       `json:"names"`
	Action   string         `json:"action"`
	Errno    *linuxErrno    `json:"errnoRet,omitempty"`
	Args     []seccompArg   `json:"args,omitempty"`
	Includes *seccompFilter `json:"includes,omitempty"`
}

// seccompArg is a condition on one argument. A rule applies if all of its conditions hold.
type seccompArg struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

type seccompFilter struct {
	MinKernel string `json:"minKernel,omitempty"`
}

const (
	seccompAllow  = "SCMP_ACT_ALLOW"
	seccompRefuse = "SCMP_ACT_ERRNO"

	opEqual    = "SCMP_CMP_EQ"
	opUnequal  = "SCMP_CMP_NE"
	opAtLeast  = "SCMP_CMP_GE"
	opMaskedEq = "SCMP_CMP_MASKED_EQ"
)

// ProfileFor returns the default profile of sandboxes for an engine's version.
func ProfileFor(version string) (string, error) { return ownProfile(choosesErrnos(version)) }

// ownProfile is the default profile of sandboxes. It allows what the engine's default allows to a container without
// capabilities, minus the calls that no sandbox needs (seccompcalls.go). It names only native entry points: the kernel
// kills a program with SIGSYS that uses another one, such as a 32-bit one.
//
// chosenErrnos means that the engine lets a profile choose the error of a refused call. Otherwise the error is always
// EPERM.
func ownProfile(chosenErrnos bool) (string, error) {
	p := seccompProfile{
		DefaultAction: seccompRefuse,
		ArchMap:       []seccompArch{{"SCMP_ARCH_X86_64", []string{}}, {"SCMP_ARCH_AARCH64", []string{}}},
		Syscalls:      allowedRules(),
	}
	if chosenErrnos {
		p.DefaultErrno = new(enosys) // the answer of a kernel without the call, so that programs fall back
		p.Syscalls = append(p.Syscalls, refusedRules()...)
	}
	text, err := json.Marshal(p)
	return string(text), err
}

func allowedRules() []*seccompRule {
	rules := []*seccompRule{
		{Names: allowedCalls, Action: seccompAllow},
		// In older kernels a tracer can bypass the filter.
		{Names: tracingCalls, Action: seccompAllow, Includes: &seccompFilter{MinKernel: "4.8"}},
		{
			Names:  []string{"clone"},
			Action: seccompAllow,
			Args:   []seccompArg{{Index: 0, Value: anyNamespace(), Op: opMaskedEq}},
		},
		{Names: []string{"socketpair"}, Action: seccompAllow, Args: argument(0, opEqual, familyUnix)},
		{Names: []string{"socket"}, Action: seccompAllow,
			Args: append(argument(0, opEqual, familyNetlink), argument(2, opEqual, netlinkRoute)...)},
	}
	for _, family := range []uint64{familyUnix, familyINET, familyINET6} {
		rules = append(rules,
			&seccompRule{Names: []string{"socket"}, Action: seccompAllow, Args: argument(0, opEqual, family)})
	}
	for _, persona := range []uint64{personaLinux, personaQuery} {
		rules = append(rules,
			&seccompRule{Names: []string{"personality"}, Action: seccompAllow, Args: argument(0, opEqual, persona)})
	}
	return rules
}

// refusedRules choose the errors of refused calls. They refuse no more than the default does without them.
func refusedRules() []*seccompRule {
	refuse := func(errno linuxErrno, names []string, args ...seccompArg) *seccompRule {
		return &seccompRule{Names: names, Action: seccompRefuse, Errno: &errno, Args: args}
	}
	rules := []*seccompRule{
		refuse(eperm, forbiddenCalls),
		refuse(enosys, absentCalls),
		refuse(eafnosupport, []string{"socketpair"}, argument(0, opUnequal, familyUnix)...),
		refuse(eprotonosupport, []string{"socket"},
			append(argument(0, opEqual, familyNetlink), argument(2, opUnequal, netlinkRoute)...)...),
		refuse(eafnosupport, []string{"socket"}, argument(0, opAtLeast, familyNetlink+1)...),
	}
	for _, flag := range namespaceFlags {
		rules = append(rules,
			refuse(eperm, []string{"clone"}, seccompArg{Index: 0, Value: flag, ValueTwo: flag, Op: opMaskedEq}))
	}
	for family := uint64(familyINET + 1); family < familyNetlink; family++ {
		if family != familyINET6 {
			rules = append(rules, refuse(eafnosupport, []string{"socket"}, argument(0, opEqual, family)...))
		}
	}
	return rules
}

func argument(index uint, op string, value uint64) []seccompArg {
	return []seccompArg{{Index: index, Value: value, Op: op}}
}

// choosesErrnos reports whether an engine passes a rule's errnoRet to its runtime, as 20.10.10 and newer do.
// A version that cannot be parsed counts as newer.
func choosesErrnos(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); n < 2 {
		return true
	}
	return major > 20 || major == 20 && (minor > 10 || minor == 10 && patch >= 10)
}
