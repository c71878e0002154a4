package image

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// LogTail is how many lines of a failed build's log its error holds.
const LogTail = 40

// Build builds an image from the context that has this hash, and returns its id. It has no name but spec.Reference.
// log, when not nil, receives the build's log line by line. When ctx ends, the engine stops.
// Errors: Invalid (context, Dockerfile or options); Conflict, when the context no longer has the
// hash: nothing was built then; Failed, with the end of the log; Unavailable.
func (b *Builder) Build(ctx context.Context, spec Spec, hash string, log func(line string)) (id string, err error) {
	engine, err := b.connect()
	if err != nil {
		return "", err
	}
	kind := spec.Builder
	if kind == "" {
		if kind, err = builderOf(ctx, engine); err != nil {
			return "", err
		}
	}
	by := byClassic
	if kind == BuildKit {
		by = byBuildKit
	}
	b.cache.RLock()
	defer b.cache.RUnlock()
	return by(ctx, engine, spec, hash, log)
}

// lookupAttempts is how often a build is begun whose look into the engine's cache was disturbed.
const lookupAttempts = 5

// byClassic builds with the engine's classic builder. It builds again where an image was removed while the engine
// looked through its cache: the engine then fails the build, whatever image that was.
func byClassic(ctx context.Context, engine Engine, spec Spec, hash string, log func(string)) (id string, err error) {
	for range lookupAttempts {
		var failed *buildError
		id, err = classic(ctx, engine, spec, hash, log)
		if !errors.As(err, &failed) || !strings.HasPrefix(failed.message, disturbed) {
			break
		}
	}
	return id, err
}

// disturbed begins what the engine says of an image that was removed while it looked through its cache.
const disturbed = `unable to find image "sha256:`

// classic sends the context to the engine's classic builder as an archive.
func classic(ctx context.Context, engine Engine, spec Spec, hash string, log func(string)) (id string, err error) {
	options := spec.buildOptions(hash)
	options.Version = dockerapi.BuilderV1
	if spec.Registries != nil {
		if options.AuthConfigs, err = spec.Registries.ForPulls(ctx); err != nil {
			return "", err
		}
	}
	sending := spec.send(hash)
	id, err = carryOut(ctx, engine, spec, sending.body, options, log)
	if cause := sending.stop(); cause != nil {
		return "", cause
	}
	return id, err
}

// carryOut starts a build and follows it to its end.
func carryOut(ctx context.Context, engine Engine, spec Spec, body io.Reader, options dockerapi.BuildOptions, log func(string)) (id string, err error) {
	resp, err := engine.ImageBuild(ctx, body, options)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", buildFailed(ctx, spec, err)
	case err != nil:
		return "", coded(err, "build image from %s", spec.Context)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	if id, err = readLog(resp.Body, log); err != nil {
		return "", buildFailed(ctx, spec, err)
	}
	return id, nil
}

// buildOptions are what both builders take.
func (s Spec) buildOptions(hash string) dockerapi.BuildOptions {
	labels := map[string]string{}
	for k, v := range s.Labels {
		labels[k] = v
	}
	labels[ContextHashLabel] = hash
	var tags []string
	if s.Reference != "" {
		tags = []string{s.Reference}
	}
	return dockerapi.BuildOptions{
		Tags:        tags,
		Dockerfile:  s.dockerfile(),
		BuildArgs:   pointers(s.Args),
		Target:      s.Target,
		Platform:    s.Platform,
		Labels:      labels,
		NoCache:     s.NoCache,
		CacheFrom:   s.CacheFrom,
		Remove:      true,
		ForceRemove: true,
	}
}

// sending is a context on its way to the engine.
type sending struct {
	body *io.PipeReader
	done chan error // one value: why the context could not be sent, nil if the engine has it all
}

// send begins to write the context. The stream breaks before its end when the context turns out
// not to have the hash.
func (s Spec) send(hash string) sending {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := s.sendTo(w, hash)
		w.CloseWithError(err) // nil is the end of the stream
		done <- err
	}()
	return sending{r, done}
}

func (s Spec) sendTo(w io.Writer, want string) error {
	out := bufio.NewWriterSize(w, 1<<18)
	got, err := s.writeTar(out)
	if err != nil {
		return err
	}
	if got != want {
		return s.changed(want, got)
	}
	if err := finishTar(out); err != nil {
		return err
	}
	return out.Flush()
}

// changed is the error for a context that is not the planned one.
func (s Spec) changed(want, got string) error {
	return sandbox.Errorf(sandbox.Conflict, "build context %s changed after it was planned: its hash was %s and is now %s. Nothing was built; plan again", s.Context, want, got)
}

// stop ends the sending and returns what was wrong with the context. That the engine did not want
// the rest is for the engine's answer to tell.
func (s sending) stop() error {
	_ = s.body.Close() // never fails
	err := <-s.done
	if errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

func pointers(m map[string]string) map[string]*string {
	p := make(map[string]*string, len(m))
	for k, v := range m {
		p[k] = &v
	}
	return p
}

// buildError is a build that the engine carried out and that failed.
type buildError struct {
	message string
	tail    []string
}

func (e *buildError) Error() string {
	if len(e.tail) == 0 {
		return e.message
	}
	return fmt.Sprintf("%s\n\nThe last %d lines of the build's log:\n\n%s", e.message, len(e.tail), strings.Join(e.tail, "\n"))
}

func buildFailed(ctx context.Context, spec Spec, err error) error {
	var failed *buildError
	switch {
	case errors.As(err, &failed):
		return sandbox.Errorf(sandbox.Failed, "build image from %s: %w", spec.Context, err)
	case ctx.Err() != nil:
		return sandbox.Errorf(sandbox.Timeout, "build image from %s: stopped before its end (%w); raise the timeout if it needs longer", spec.Context, context.Cause(ctx))
	default:
		return sandbox.Errorf(sandbox.Unavailable, "build image from %s: the engine's answer broke off: %w", spec.Context, err)
	}
}

// readLog reads the engine's answer to its end and returns the id of the image.
func readLog(body io.Reader, log func(string)) (id string, err error) {
	lines := &tail{log: log}
	steps := &trace{lines, map[string]bool{}}
	for d := json.NewDecoder(body); ; {
		var m dockerapi.Message
		switch err := d.Decode(&m); {
		case errors.Is(err, io.EOF) && id == "":
			return "", errors.New("no image id was given")
		case errors.Is(err, io.EOF):
			return id, nil
		case err != nil:
			return "", err
		}
		lines.write(m.Stream)
		if m.Status != "" && m.Progress == nil {
			lines.write(m.Status + "\n")
		}
		if m.Error != nil {
			lines.flush()
			return "", &buildError{m.Error.Message, lines.last}
		}
		if m.Aux != nil && m.ID == traceID {
			if err := steps.read(m); err != nil {
				return "", err
			}
		} else if m.Aux != nil {
			var result dockerapi.BuildResult
			if err := json.Unmarshal(*m.Aux, &result); err == nil && result.ID != "" {
				id = result.ID
			}
		}
	}
}

// tail passes complete lines on and keeps the last LogTail of them.
type tail struct {
	log     func(string)
	partial string
	last    []string
}

func (t *tail) write(s string) {
	parts := strings.Split(t.partial+s, "\n")
	for _, line := range parts[:len(parts)-1] {
		t.add(line)
	}
	t.partial = parts[len(parts)-1]
}

func (t *tail) flush() {
	if t.partial != "" {
		t.add(t.partial)
		t.partial = ""
	}
}

func (t *tail) add(line string) {
	line = strings.TrimRight(line, "\r")
	if line == "" {
		return
	}
	if t.log != nil {
		t.log(line)
	}
	t.last = append(t.last, line)
	if len(t.last) > LogTail {
		t.last = t.last[1:]
	}
}
