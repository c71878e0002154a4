package ledger

import (
	"maps"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Container is the configuration of a sandbox's container. It is constant for the sandbox's life, whichever
// lease the sandbox belongs to.
type Container struct {
	EnvironmentType sandbox.EnvironmentType
	Image           string
	MemoryMB        int64
	CPUMillis       int64
	PIDs            int64 `gorm:"column:pids_limit"`
	DiskMB          int64
	Network         sandbox.NetworkMode
	Egress          sandbox.Egress `gorm:"serializer:json"` // the rules that its hosts file was built from
	// LLM are the protocols of the LLM routes, by name, from which the sandbox's variables were made.
	LLM        map[string]sandbox.LLMAPI `gorm:"column:llm;serializer:json"`
	Env        map[string]string         `gorm:"serializer:json"`
	Companions sandbox.Companions        `gorm:"serializer:json"`
	// The limits of its companions together, which are billed with its own.
	CompanionMemoryMB, CompanionCPUMillis, CompanionDiskMB int64
	Confinement                                            sandbox.Confinement `gorm:"serializer:json"`
	Host                                                   sandbox.HostAccess  `gorm:"column:host_access;serializer:json"`
	SleepMode                                              sandbox.SleepMode
}

// NewContainer returns the container configuration of an environment of the given type.
func NewContainer(t sandbox.EnvironmentType, spec sandbox.EnvironmentSpec) Container {
	env := make(map[string]string, len(spec.Env)) // GORM stores a nil map as NULL
	maps.Copy(env, spec.Env)
	companions := make(sandbox.Companions, len(spec.Companions))
	maps.Copy(companions, spec.Companions)
	beside := companions.Resources()
	return Container{
		EnvironmentType: t,
		Image:           spec.Image,
		MemoryMB:        spec.Resources.MemoryMB,
		CPUMillis:       spec.Resources.CPUMillis,
		PIDs:            spec.Resources.PIDs,
		DiskMB:          spec.Resources.DiskMB,
		Network:         spec.Network,
		Egress:          spec.EgressRules(),
		LLM:             spec.LLMProtocols(),
		Env:             env,
		Companions:      companions,

		CompanionMemoryMB: beside.MemoryMB, CompanionCPUMillis: beside.CPUMillis, CompanionDiskMB: beside.DiskMB,

		Confinement: spec.Confinement,
		Host:        spec.HostAccess,
		SleepMode:   spec.SleepMode,
	}
}

// Difference names the first setting in which two containers differ, "" if they are equal.
func (c *Container) Difference(o Container) string {
	switch {
	case c.EnvironmentType != o.EnvironmentType:
		return "type"
	case c.Image != o.Image:
		return "image"
	case c.Resources() != o.Resources():
		return "size"
	case !c.Companions.Equal(o.Companions) || c.Size() != o.Size():
		return "companions"
	case c.Network != o.Network:
		return "network"
	case !c.Egress.Equal(o.Egress):
		return "egress"
	case !maps.Equal(c.LLM, o.LLM):
		return "llm"
	case c.SleepMode != o.SleepMode:
		return "sleep mode"
	case c.Confinement != o.Confinement:
		return "confinement"
	case !c.Host.Equal(o.Host):
		return "access to the host"
	case !maps.Equal(c.Env, o.Env):
		return "env"
	}
	return ""
}

// Found returns the container as its backend shows it. A backend does not show the other fields.
func (c Container) Found(o driver.Observation) Container {
	c.Image, c.MemoryMB, c.CPUMillis, c.PIDs = o.Image, o.Resources.MemoryMB, o.Resources.CPUMillis, o.Resources.PIDs
	return c
}

// Rules returns the environment's rules for commands at the creation of the sandbox.
func (c *Container) Rules() sandbox.CommandRules {
	return sandbox.EnvironmentSpec{HostAccess: c.Host, Confinement: c.Confinement}.Rules()
}

// Resources returns the sandbox's limits.
func (c *Container) Resources() sandbox.Resources {
	return sandbox.Resources{MemoryMB: c.MemoryMB, CPUMillis: c.CPUMillis, PIDs: c.PIDs, DiskMB: c.DiskMB}
}

// Size returns the billed size: the limits of the sandbox and those of its companions.
func (c *Container) Size() sandbox.Resources {
	return c.Resources().Plus(sandbox.Resources{
		MemoryMB: c.CompanionMemoryMB, CPUMillis: c.CompanionCPUMillis, DiskMB: c.CompanionDiskMB,
	})
}
