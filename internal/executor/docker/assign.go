package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// A sandbox of a warm pool has one volume more, its lease volume: root's, and mounted read-only, so
// that no code in the sandbox can write to it. Assign puts one file there. Where the engine's volumes
// are files that this program may write, that takes no request to the engine; elsewhere a carrier
// takes the file there through the archive API.

// pooled reports whether a sandbox is made for a warm pool: for nobody yet.
func pooled(spec sandbox.SandboxSpec) bool { return spec.AgentDID == "" }

func leaseMount(h sandbox.Handle, readOnly bool) dockerapi.Mount {
	m := volumeMount(leaseVolume(h), guest.LeaseDir, handleLabels(h, roleLease))
	m.ReadOnly, m.VolumeOptions.NoCopy = readOnly, true
	return m
}

// Assign implements sandbox.Lifecycle.
func (e *Executor) Assign(ctx context.Context, spec sandbox.SandboxSpec) error {
	if err := checkSpec(spec); err != nil {
		return err
	}
	end := endOf(spec)
	if spec.Network == sandbox.NetworkRestricted {
		if err := e.admit(ctx, spec); err != nil {
			return err
		}
	}
	ends, err := e.endsAt(ctx, spec.Instance, end)
	if err != nil {
		return err
	}
	content, err := json.Marshal(wire.Lease{Env: systemEnv(spec), Config: string(spec.Config), Deadline: ends.At, Ends: ends})
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "docker: sandbox %s: encode its lease: %w", spec.SandboxID, err)
	}
	// The directory's name holds the sandbox's id, which nothing else has: if it is there, it is the
	// engine's. Kill removes it with the sandbox.
	if dir := e.leaseDir(spec.Handle); dir != "" && writeLease(dir, content, spec.SleepMode) == nil {
		return nil
	}
	return e.assignThroughEngine(ctx, spec, content)
}

// leaseDir returns where the lease volume should be on this machine, "" while that is not known.
func (e *Executor) leaseDir(h sandbox.Handle) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	root := e.volumes[h.Instance]
	if root == "" {
		return ""
	}
	return filepath.Join(root, leaseVolume(h), volumeData)
}

// volumeData is the directory of a local volume's files, below one named as the volume.
const volumeData = "_data"

// learnVolumes notes where an engine keeps its volumes, if it keeps them as files of its own.
func (e *Executor) learnVolumes(instance string, v dockerapi.Volume) {
	root, ok := strings.CutSuffix(v.Mountpoint, "/"+v.Name+"/"+volumeData)
	if !strings.HasPrefix(e.api.DaemonHost(), "unix://") {
		return // it may be another machine's
	}
	if v.Driver != "local" || len(v.Options) > 0 || !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.volumes[instance] = root
}

// writeLease makes the file appear, complete. It fails where the engine is another machine's, or
// this program may not write there.
func writeLease(dir string, content []byte, mode sandbox.SleepMode) error {
	f, err := os.CreateTemp(dir, ".lease-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644))
	if mode == sandbox.SleepStop { // it outlives a crash of the machine, as its sandbox does
		err = errors.Join(err, f.Sync())
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, wire.LeaseFile))
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// assignThroughEngine has the engine write the file, unless a call before did so.
func (e *Executor) assignThroughEngine(ctx context.Context, spec sandbox.SandboxSpec, content []byte) error {
	c, err := e.inspect(ctx, spec.Handle)
	if err != nil {
		return err
	}
	v, err := fetch(ctx, e, read("look for volume", leaseVolume(spec.Handle)), func(ctx context.Context) (dockerapi.Volume, error) {
		return e.api.VolumeInspect(ctx, leaseVolume(spec.Handle))
	})
	if isCode(err, sandbox.NotFound) {
		return sandbox.Errorf(sandbox.Conflict, "docker: sandbox %s was not made for a warm pool: it cannot be assigned", spec.SandboxID).
			WithReason(sandbox.ReasonInvalidState)
	}
	if err != nil {
		return err
	}
	if err := e.checkLabels("volume", v.Name, v.Labels, handleLabels(spec.Handle, roleLease)); err != nil {
		return err
	}
	if e.leaseDir(spec.Handle) == "" { // this program has started anew: next time it knows
		e.learnVolumes(spec.Instance, v)
		if dir := e.leaseDir(spec.Handle); dir != "" && writeLease(dir, content, spec.SleepMode) == nil {
			return nil
		}
	}
	return e.carryLease(ctx, spec.Handle, c.Image, content)
}

// carryLease puts the file into the lease volume by a container that is never started.
func (e *Executor) carryLease(ctx context.Context, h sandbox.Handle, image string, content []byte) (err error) {
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	err = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: wire.LeaseFile, Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = tw.Write(content)
	}
	if err = errors.Join(err, tw.Close()); err != nil {
		return sandbox.Errorf(sandbox.Failed, "docker: sandbox %s: pack its lease: %w", h.SandboxID, err)
	}
	name := carrierName(h)
	if err := e.removeContainer(ctx, name); err != nil { // of a call that was cut off
		return err
	}
	err = e.do(ctx, change("create carrier", name, sandbox.ReasonCreationFailed), func(ctx context.Context) error {
		_, err := e.api.ContainerCreate(ctx,
			&dockerapi.ContainerConfig{Image: image, Entrypoint: []string{guest.Path}, Labels: handleLabels(h, roleCarrier)},
			&dockerapi.HostConfig{Mounts: []dockerapi.Mount{leaseMount(h, false)}, NetworkMode: "none"}, nil, nil, name)
		return err
	})
	if err != nil {
		return err
	}
	defer e.discardCarrier(context.WithoutCancel(ctx), h)
	return e.do(ctx, change("copy the lease into", name, sandbox.ReasonCreationFailed), func(ctx context.Context) error {
		return e.api.CopyToContainer(ctx, name, guest.LeaseDir, bytes.NewReader(archive.Bytes()), dockerapi.CopyToContainerOptions{})
	})
}
