package docker_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// BenchmarkExec compares Exec with the engine's own exec of the same command, with the same client in the same sandbox,
// alternating in one run.
func BenchmarkExec(b *testing.B) {
	w, api := newWorld(b, dockertest.Busybox(b)), dockertest.Engine(b)
	spec := w.spec()
	must(b, w.x.Spawn(b.Context(), spec))
	r, err := sandbox.ExecRequest{Command: []string{"echo", "hello"}}.Normalize()
	must(b, err)
	var ours, plain []time.Duration
	for b.Loop() {
		ours = append(ours, timed(b, func() error {
			_, err := w.x.Exec(b.Context(), spec.Handle, r)
			return err
		}))
		plain = append(plain, timed(b, func() error {
			made, err := api.ContainerExecCreate(b.Context(), name(spec.Handle),
				dockerapi.ExecOptions{Cmd: r.Command, AttachStdout: true, AttachStderr: true})
			if err != nil {
				return err
			}
			conn, err := api.ContainerExecAttach(b.Context(), made.ID, dockerapi.ExecAttachOptions{})
			if err != nil {
				return err
			}
			defer conn.Close()
			var out, errOut bytes.Buffer
			if _, err := dockerapi.StdCopy(&out, &errOut, conn.Reader); err != nil {
				return err
			}
			_, err = api.ContainerExecInspect(b.Context(), made.ID)
			return err
		}))
	}
	b.ReportMetric(float64(median(ours))/float64(time.Millisecond), "exec-ms")
	b.ReportMetric(float64(median(ours))/float64(median(plain)), "exec-ratio")
}
