package image

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/pkg/jsonmessage"
	control "github.com/moby/buildkit/api/services/control"
	"github.com/moby/buildkit/session"
	"github.com/moby/buildkit/session/secrets/secretsprovider"
	"google.golang.org/protobuf/proto"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// cancelTimeout bounds how long the engine may take to give up a build.
const cancelTimeout = 10 * time.Second

// traceID marks the messages of an answer in which BuildKit tells what it does.
const traceID = "moby.buildkit.trace"

// byBuildKit carries a build out in a session of its own.
func (b *Builder) byBuildKit(ctx context.Context, engine Engine, spec Spec, hash string, options build.ImageBuildOptions, log func(string)) (id string, err error) {
	s, err := openSession(ctx, engine, spec.Secrets)
	if err != nil {
		return "", err
	}
	options.Version, options.SessionID, options.BuildID = build.BuilderBuildKit, s.ID(), s.ID()
	id, err = b.carryOut(ctx, engine, spec, hash, options, log)
	if ctx.Err() != nil {
		err = errors.Join(err, cancelBuild(ctx, engine, options.BuildID))
	}
	if sessionErr := s.close(); err != nil && ctx.Err() == nil && sessionErr != nil {
		err = errors.Join(err, sessionErr)
	}
	return id, err
}

// buildSession is the connection by which BuildKit asks for what is not in the context, secrets.
type buildSession struct {
	*session.Session
	ended chan error // one value, when the connection has ended
}

// openSession opens a session that ends with ctx or by close.
func openSession(ctx context.Context, engine Engine, secrets map[string]sandbox.Secret) (*buildSession, error) {
	s, err := session.NewSession(ctx, "")
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "open a session with BuildKit: %w", err)
	}
	values := make(map[string][]byte, len(secrets))
	for id, secret := range secrets {
		values[id] = []byte(secret)
	}
	s.Allow(secretsprovider.FromMap(values))
	opened := &buildSession{s, make(chan error, 1)}
	go func() {
		opened.ended <- s.Run(ctx, func(ctx context.Context, proto string, meta map[string][]string) (net.Conn, error) {
			return engine.DialHijack(ctx, "/session", proto, meta)
		})
	}()
	return opened, nil
}

// close ends the session and returns why it failed before, if it did.
func (s *buildSession) close() error {
	_ = s.Close() // of a connection that may be gone already
	return <-s.ended
}

// cancelBuild has the engine give up a build whose caller has gone.
func cancelBuild(ctx context.Context, engine Engine, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if err := engine.BuildCancel(ctx, id); err != nil {
		return coded(err, "stop build %s", id)
	}
	return nil
}

// trace turns what BuildKit tells into lines of a log: the name of each step that begins, its
// output, and its error.
type trace struct {
	lines *tail
	begun map[string]bool // by digest of the step
}

func (t *trace) read(m jsonmessage.JSONMessage) error {
	var encoded []byte
	if err := json.Unmarshal(*m.Aux, &encoded); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "read what BuildKit does: %w", err)
	}
	var status control.StatusResponse
	if err := proto.Unmarshal(encoded, &status); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "read what BuildKit does: %w", err)
	}
	for _, step := range status.Vertexes {
		if step.Started != nil && !t.begun[step.Digest] {
			t.begun[step.Digest] = true
			t.lines.flush()
			t.lines.write(step.Name + "\n")
		}
		if step.Error != "" {
			t.lines.flush()
			t.lines.write(step.Error + "\n")
		}
	}
	for _, log := range status.Logs {
		t.lines.write(string(log.Msg))
	}
	return nil
}

// buildOptions are what both builders take.
func (s Spec) buildOptions(hash string) build.ImageBuildOptions {
	labels := map[string]string{}
	for k, v := range s.Labels {
		labels[k] = v
	}
	labels[ContextHashLabel] = hash
	return build.ImageBuildOptions{
		Version:     build.BuilderV1,
		Dockerfile:  s.dockerfile(),
		BuildArgs:   pointers(s.Args),
		Target:      s.Target,
		Platform:    s.Platform,
		Labels:      labels,
		NoCache:     s.NoCache,
		Remove:      true,
		ForceRemove: true,
	}
}
