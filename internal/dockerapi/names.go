package dockerapi

import (
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/docker/docker/pkg/stdcopy"
	"github.com/docker/go-connections/nat"
)

// The client.
type (
	Client             = client.Client
	ImageInspectOption = client.ImageInspectOption
	ImageSaveOption    = client.ImageSaveOption
)

// Connections and the engine.
type (
	HijackedResponse = types.HijackedResponse
	Info             = system.Info
	Ping             = types.Ping
)

// Containers and processes in them.
type (
	CommitOptions           = container.CommitOptions
	ContainerConfig         = container.Config
	ContainerCreateResponse = container.CreateResponse
	ContainerInspect        = container.InspectResponse
	ContainerListOptions    = container.ListOptions
	ContainerRemoveOptions  = container.RemoveOptions
	ContainerMountPoint     = container.MountPoint
	ContainerState          = container.State
	ContainerStatus         = container.ContainerState
	ContainerSummary        = container.Summary
	CopyToContainerOptions  = container.CopyToContainerOptions
	DeviceMapping           = container.DeviceMapping
	ExecAttachOptions       = container.ExecAttachOptions
	ExecCreateResponse      = container.ExecCreateResponse
	ExecInspect             = container.ExecInspect
	ExecOptions             = container.ExecOptions
	HealthConfig            = container.HealthConfig
	HostConfig              = container.HostConfig
	LogConfig               = container.LogConfig
	LogsOptions             = container.LogsOptions
	MemoryStats             = container.MemoryStats
	NetworkMode             = container.NetworkMode
	Resources               = container.Resources
	RestartPolicy           = container.RestartPolicy
	StartOptions            = container.StartOptions
	StatsResponse           = container.StatsResponse
	TopResponse             = container.TopResponse
	StopOptions             = container.StopOptions
	Ulimit                  = container.Ulimit
	UpdateConfig            = container.UpdateConfig
)

const (
	IPCModePrivate             = container.IPCModePrivate
	RestartPolicyDisabled      = container.RestartPolicyDisabled
	RestartPolicyUnlessStopped = container.RestartPolicyUnlessStopped
	StateCreated               = container.StateCreated
	StatePaused                = container.StatePaused
	StateRemoving              = container.StateRemoving
	StateRestarting            = container.StateRestarting
	StateRunning               = container.StateRunning
)

// Mounts.
type (
	BindOptions        = mount.BindOptions
	Mount              = mount.Mount
	VolumeMountOptions = mount.VolumeOptions
)

const (
	MountTypeBind       = mount.TypeBind
	MountTypeVolume     = mount.TypeVolume
	PropagationRPrivate = mount.PropagationRPrivate
	PropagationRShared  = mount.PropagationRShared
	PropagationShared   = mount.PropagationShared
)

// Volumes.
type (
	Volume              = volume.Volume
	VolumeCreateOptions = volume.CreateOptions
	VolumeListOptions   = volume.ListOptions
	VolumeListResponse  = volume.ListResponse
)

// Networks.
type (
	EndpointSettings      = network.EndpointSettings
	IPAM                  = network.IPAM
	IPAMConfig            = network.IPAMConfig
	NetworkCreateOptions  = network.CreateOptions
	NetworkInspectOptions = network.InspectOptions
	NetworkListOptions    = network.ListOptions
	NetworkSummary        = network.Summary
	Port                  = nat.Port
	PortMap               = nat.PortMap
	PortSet               = nat.PortSet
)

const (
	NetworkBridge = network.NetworkBridge
	NetworkHost   = network.NetworkHost
	NetworkNone   = network.NetworkNone
)

// Images.
type (
	AuthConfig          = registry.AuthConfig
	ImageDeleteResponse = image.DeleteResponse
	ImageImportOptions  = image.ImportOptions
	ImageImportSource   = image.ImportSource
	ImageInspect        = image.InspectResponse
	ImageListOptions    = image.ListOptions
	ImagePullOptions    = image.PullOptions
	ImagePushOptions    = image.PushOptions
	ImageRemoveOptions  = image.RemoveOptions
	ImageSummary        = image.Summary
)

// Builds.
type (
	BuildOptions  = build.ImageBuildOptions
	BuildResponse = build.ImageBuildResponse
	BuildResult   = build.Result
)

const (
	BuilderBuildKit = build.BuilderBuildKit
	BuilderV1       = build.BuilderV1
)

// Events.
type (
	Action           = events.Action
	EventListOptions = events.ListOptions
)

const (
	ActionCreate       = events.ActionCreate
	ActionDestroy      = events.ActionDestroy
	ActionDie          = events.ActionDie
	ActionOOM          = events.ActionOOM
	ActionPause        = events.ActionPause
	ActionRename       = events.ActionRename
	ActionStart        = events.ActionStart
	ActionUnPause      = events.ActionUnPause
	ActionUpdate       = events.ActionUpdate
	ContainerEventType = events.ContainerEventType
)

// Filters.
type (
	Filters = filters.Args
)

// Streams.
type (
	Message = jsonmessage.JSONMessage
	StdType = stdcopy.StdType
)

const (
	Stdout = stdcopy.Stdout
)
