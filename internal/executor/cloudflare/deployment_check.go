package cloudflare

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxName is the longest name of a Worker that has a workers.dev route, in characters: one label of a host name.
const maxName = 63

var (
	deploymentName = regexp.MustCompile(`^sandbox-[a-z0-9]([a-z0-9-]{0,53}[a-z0-9])?$`)
	imageDigest    = regexp.MustCompile(`^([^\s@]+@)?sha256:[0-9a-f]{64}$`)
	unsafeInName   = regexp.MustCompile(`[^a-z0-9]+`)
)

// DeploymentPrefix returns the prefix of the names of a ledger's deployments.
func DeploymentPrefix(ledgerID string) string { return "sandbox-" + ledgerID + "-" }

// DeploymentName returns the name of an environment's deployment. It has the ledger's prefix and a readable form of the
// environment's id. A hash distinguishes ids that differ only in characters that names of Workers and buckets cannot
// have.
func DeploymentName(ledgerID, environmentID string) string {
	sum := sha256.Sum256([]byte(environmentID))
	prefix, suffix := DeploymentPrefix(ledgerID), hex.EncodeToString(sum[:5])
	readable := strings.Trim(unsafeInName.ReplaceAllString(environmentID, "-"), "-")
	if room := maxName - len(prefix) - len(suffix) - 1; len(readable) > room {
		readable = strings.TrimRight(readable[:room], "-")
	}
	if readable == "" {
		return prefix + suffix
	}
	return prefix + readable + "-" + suffix
}

// SharedName returns the name of the deployment that environments of a ledger share. It differs from every
// DeploymentName, because those end with ten hexadecimal digits.
func SharedName(ledgerID string) string { return DeploymentPrefix(ledgerID) + "shared" }

// CheckDeploymentName rejects names without the form of DeploymentName and SharedName, so that objects with other names
// are never changed. Errors: Invalid.
func CheckDeploymentName(name string) error {
	if deploymentName.MatchString(name) {
		return nil
	}
	return sandbox.InvalidFields("cloudflare: deployment "+fmt.Sprintf("%q", name), []sandbox.Field{{Name: "name",
		Problem: `must begin with "sandbox-" and have at most 63 characters of a-z, 0-9 and "-"`}})
}

// ScriptDigest identifies a Worker by its content.
func ScriptDigest(script []byte) string {
	sum := sha256.Sum256(script)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// KeyDigest distinguishes signing keys, and reveals nothing else about them.
func KeyDigest(key sandbox.Secret) string {
	h := hmac.New(sha256.New, []byte(key))
	_, _ = h.Write([]byte("which signing key")) // a hash does not fail
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// KeysDigest identifies the keys that a deployment accepts: the KeyDigest of each, newest first, separated by commas.
func (d Deployment) KeysDigest() string {
	if d.OlderKey == "" {
		return KeyDigest(d.SigningKey)
	}
	return KeyDigest(d.SigningKey) + "," + KeyDigest(d.OlderKey)
}

// Check validates a deployment. Errors: Invalid, naming the fields.
func (d Deployment) Check() error {
	if err := CheckDeploymentName(d.Name); err != nil {
		return err
	}
	var f []sandbox.Field
	must := func(holds bool, name, problem string, args ...any) {
		if !holds {
			f = append(f, sandbox.Field{Name: name, Problem: fmt.Sprintf(problem, args...)})
		}
	}
	must(len(d.Script) > 0, "script", "must not be empty")
	must(imageDigest.MatchString(d.Image), "image", "must be a reference with a digest, such as "+
		"ghcr.io/acme/game@sha256:… or the reference of a sandbox_container_image, not %q", d.Image)
	must(d.SigningKey != "", "signing_key", "must not be empty")
	must(d.RolloutGrace >= 0 && d.RolloutGrace <= RolloutGrace && d.RolloutGrace%time.Second == 0, "rollout_grace",
		"must be whole seconds, from 0 to %s, not %s", RolloutGrace, d.RolloutGrace)
	for _, name := range []string{BindingSandbox, BindingDatabase, BindingState, BindingSigningKey, BindingOlderKey,
		BindingInstance, BindingKeyDigest, BindingPolicy} {
		_, taken := d.Variables[name]
		must(!taken, "variables", "must not have %s: the deployment sets it", name)
	}
	for name := range d.Variables {
		must(!strings.HasPrefix(name, BindingImages), "variables", "must not have %s: the deployment sets it", name)
	}
	return sandbox.InvalidFields("cloudflare: deployment "+d.Name, append(f, d.policyFields()...))
}

// InstanceTypeOf returns the name of the size with this memory, CPU and disk, "" if there is none.
func InstanceTypeOf(r sandbox.Resources) string {
	i := slices.IndexFunc(sandbox.InstanceTypes, func(t sandbox.InstanceType) bool { return sameSize(t.Resources, r) })
	if i < 0 {
		return ""
	}
	return sandbox.InstanceTypes[i].Name
}

// sameSize compares the parts of a size that Cloudflare knows.
func sameSize(a, b sandbox.Resources) bool {
	return a.MemoryMB == b.MemoryMB && a.CPUMillis == b.CPUMillis && a.DiskMB == b.DiskMB
}

// Bounds of a custom size (developers.cloudflare.com/containers/platform-details/limits, read 2026-11).
const (
	minCPUMillis, maxCPUMillis = 1000, 4000
	memoryPerCPU, maxMemoryMB  = 3072, 12288
	maxDiskMB                  = 20000
	// diskPerGiB is the disk that 1 GiB of memory allows, in MB.
	diskPerGiB = 2000
)

func resourceFields(r sandbox.Resources) (f []sandbox.Field) {
	if InstanceTypeOf(r) != "" {
		return nil
	}
	must := func(holds bool, name, problem string, args ...any) {
		if !holds {
			f = append(f, sandbox.Field{Name: "resources." + name, Problem: fmt.Sprintf(problem, args...)})
		}
	}
	least := max(r.CPUMillis, minCPUMillis) * memoryPerCPU / 1000
	must(r.CPUMillis >= minCPUMillis && r.CPUMillis <= maxCPUMillis,
		"cpu_millis", "must be between %d and %d on Cloudflare, not %d; smaller only as a named size",
		minCPUMillis, maxCPUMillis, r.CPUMillis)
	must(r.MemoryMB >= least && r.MemoryMB <= maxMemoryMB,
		"memory_mb", "must be between %d and %d on Cloudflare (3 GiB for each CPU), not %d; smaller only as a named size",
		least, maxMemoryMB, r.MemoryMB)
	most := min(maxDiskMB, r.MemoryMB*diskPerGiB/1024)
	must(r.DiskMB >= 1 && r.DiskMB <= most, "disk_mb",
		"must be between 1 and %d on Cloudflare (2 GB for each GiB of memory, at most 20 GB), not %d", most, r.DiskMB)
	return f
}

// Differences returns how a site differs from the deployment. None means that Deploy has nothing to do, except to drop
// images that only the site has. Settings are script, signing_key, variables, images, image, resources, max_instances
// and rollout_grace, and each missing Part.
func (d Deployment) Differences(s Site) (all []driver.Difference) {
	differ := func(setting, wanted, found string) {
		if wanted != found {
			all = append(all, driver.Difference{Setting: setting, Wanted: wanted, Found: found})
		}
	}
	for _, part := range s.Missing {
		differ(string(part), "present", "absent")
	}
	if !slices.Contains(s.Missing, PartWorker) {
		differ("script", ScriptDigest(d.Script), s.ScriptDigest)
		differ("signing_key", d.KeysDigest(), cmp.Or(s.SigningKeyDigest, "absent"))
		if !maps.Equal(d.Variables, s.Variables) {
			differ("variables", describeVariables(d.Variables), describeVariables(s.Variables))
		}
		all = append(all, missingImages(d.Images, s.Images)...)
	}
	if d.Policy != PolicyDurableObject && !slices.Contains(s.Missing, PartApplication) {
		differ("image", d.Image, s.Image)
		differ("resources", describeSize(d.Resources), describeSize(s.Resources))
		differ("max_instances", fmt.Sprint(d.MaxInstances), fmt.Sprint(s.MaxInstances))
		differ("rollout_grace", d.RolloutGrace.String(), s.RolloutGrace.String())
	}
	return all
}

func describeVariables(v map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		all = append(all, fmt.Sprintf("%s=%q", name, v[name]))
	}
	return cmp.Or(strings.Join(all, " "), "none")
}

func describeSize(r sandbox.Resources) string {
	return cmp.Or(InstanceTypeOf(r), fmt.Sprintf("%d MiB, %d thousandths of a CPU, %d MB of disk",
		r.MemoryMB, r.CPUMillis, r.DiskMB))
}
