package image

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// LogTail is the number of lines of a failed build's log in its error.
const LogTail = 40

// Build builds an image from the context with this hash, and returns its id. Its only name is spec.Reference. log, if
// not nil, receives the build's log line by line. The engine stops the build when ctx ends. Errors: Invalid (context,
// Dockerfile or options); Conflict, if the context no longer has the hash (nothing is built then); Failed, with the end
// of the log; Unavailable.
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

// lookupAttempts is the number of attempts of a build whose cache lookup was disturbed.
const lookupAttempts = 5

// byClassic builds with the engine's classic builder. It retries if an image was removed during the engine's
// cache lookup: the engine then fails the build, even if the image was unrelated.
func byClassic(ctx context.Context, engine Engine, spec Spec, hash string, log func(string)) (id string, err error) {
	for range lookupAttempts {
		var failed *buildError
		id, err = classic(ctx, engine, spec, hash, log)
		if !errors.As(err, &failed) || !dockerapi.IsLookupDisturbed(failed.message) {
			break
		}
	}
	return id, err
}

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
func carryOut(ctx context.Context, engine Engine, spec Spec, body io.Reader, options dockerapi.BuildOptions,
	log func(string)) (id string, err error) {
	resp, err := engine.ImageBuild(ctx, body, options)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", buildFailed(ctx, spec, err)
	case err != nil:
		return "", coded(err, "build image from %s", spec.Context)
	}
	defer func() { _ = resp.Body.Close() }() // the body was read to its end
	if id, err = readLog(resp.Body, log); err != nil {
		return "", buildFailed(ctx, spec, err)
	}
	return id, nil
}

// buildOptions returns the options for both builders.
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

// sending is the upload of a context to the engine.
type sending struct {
	body *io.PipeReader
	done chan error // one value: why the upload failed, nil if it is complete
}

// send starts to write the context. If its hash differs, the stream breaks before its end.
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

// changed is the error for a context that differs from the planned one.
func (s Spec) changed(want, got string) error {
	return sandbox.Errorf(sandbox.Conflict,
		"build context %s changed after it was planned: its hash was %s and is now %s. Nothing was built; plan again",
		s.Context, want, got)
}

// stop ends the upload and returns the error of the context. If the engine closed the stream early, its
// answer says why.
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

// buildError is the failure of a build on the engine.
type buildError struct {
	message string
	tail    []string
}

func (e *buildError) Error() string {
	if len(e.tail) == 0 {
		return e.message
	}
	return fmt.Sprintf("%s\n\nThe last %d lines of the build's log:\n\n%s",
		e.message, len(e.tail), strings.Join(e.tail, "\n"))
}

func buildFailed(ctx context.Context, spec Spec, err error) error {
	var failed *buildError
	switch {
	case errors.As(err, &failed) && slices.ContainsFunc(failed.tail, dockerapi.IsBaseByID):
		return sandbox.Errorf(sandbox.Failed, "build image from %s: FROM names an image by its id, which BuildKit looks for "+
			"on Docker Hub. Name it by a tag that it has on the engine, push it, or set the builder to classic: %w",
			spec.Context, err)
	case errors.As(err, &failed):
		return sandbox.Errorf(sandbox.Failed, "build image from %s: %w", spec.Context, err)
	case ctx.Err() != nil:
		return sandbox.Errorf(sandbox.Timeout,
			"build image from %s: stopped before its end (%w); raise the timeout if the build needs more time",
			spec.Context, context.Cause(ctx))
	default:
		return sandbox.Errorf(sandbox.Unavailable, "build image from %s: the engine's answer was cut off: %w",
			spec.Context, err)
	}
}

// readLog reads the engine's answer to its end and returns the image's id.
func readLog(body io.Reader, log func(string)) (id string, err error) {
	lines := &tail{log: log}
	steps := &trace{lines, map[string]bool{}}
	for d := json.NewDecoder(body); ; {
		var m dockerapi.Message
		switch err := d.Decode(&m); {
		case errors.Is(err, io.EOF) && id == "":
			return "", errors.New("the engine returned no image id")
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

// tail forwards complete lines and keeps the last LogTail of them.
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
