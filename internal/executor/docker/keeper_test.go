package docker_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// impostor asks process 1 for a command as a helper does, and says who listened.
const impostor = `package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: "@sandbox-commands", Net: "unixpacket"})
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	if _, err := conn.Write([]byte(os.Args[1])); err != nil {
		fmt.Println("refused:", err)
		return
	}
	b := make([]byte, 1000)
	n, err := conn.Read(b)
	if n == 0 {
		fmt.Println("refused:", err)
		return
	}
	fmt.Printf("answered: %s\n", b[:n])
}
`

func TestCodeOfTheSandboxNeitherReadsNorForgesWhatIsKeptOfCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	spec := w.spec()
	must(t, w.x.Spawn(t.Context(), spec))
	run := func(r sandbox.ExecRequest) sandbox.ExecResult {
		t.Helper()
		r, err := r.Normalize()
		must(t, err)
		res, err := w.x.Exec(t.Context(), spec.Handle, r)
		must(t, err)
		return res
	}
	run(sandbox.ExecRequest{Command: []string{"sh", "-c", "cat > /workspace/impostor && chmod 755 /workspace/impostor"},
		Stdin: bytes.NewReader(executortest.Compile(t, impostor))})
	run(sandbox.ExecRequest{ID: "known", Command: []string{"echo", "true"}})
	for _, user := range []string{"", "0:0"} {
		for _, asked := range []string{`{"follow":"known"}`, `{"keep":"known"}`, `{"keep":"other"}`} {
			if res := run(sandbox.ExecRequest{Command: []string{"/workspace/impostor", asked}, User: user}); !bytes.HasPrefix(res.Stdout, []byte("refused: ")) {
				t.Errorf("as user %q: %s is %s%s", user, asked, res.Stdout, res.Stderr)
			}
		}
	}
	// Nor does it reach the files by the processes that have them open: it sees the directory and two files.
	go func() { // ends with the sandbox
		r, _ := sandbox.ExecRequest{ID: "running", Command: []string{"sleep", "1000"}, Detach: true}.Normalize()
		_, _ = w.x.Exec(t.Context(), spec.Handle, r)
	}()
	if res := run(sandbox.ExecRequest{Command: []string{"sh", "-c", "sleep 1; ls /proc/1/fd/ ; for p in $(pidof guest); do ls /proc/$p/fd/; done; find /workspace | wc -l"}}); string(res.Stdout) != "3\n" {
		t.Errorf("it sees %s", res.Stdout)
	}
	var out bytes.Buffer
	if _, err := w.x.Follow(t.Context(), spec.Handle, sandbox.Replay{ID: "known", Stdout: &out}); err != nil || out.String() != "true\n" {
		t.Errorf("the command wrote %q, %v", out.String(), err)
	}
}

// BenchmarkExec compares Exec with the engine's own exec of the same command, through the same client
// and in the same sandbox, alternating in one run.
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
			made, err := api.ContainerExecCreate(b.Context(), name(spec.Handle), dockerapi.ExecOptions{Cmd: r.Command, AttachStdout: true, AttachStderr: true})
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
