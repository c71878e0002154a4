package image

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"

	control "github.com/moby/buildkit/api/services/control"
	"github.com/moby/buildkit/session"
	"github.com/moby/buildkit/session/filesync"
	"github.com/moby/buildkit/session/secrets/secretsprovider"
	"google.golang.org/protobuf/proto"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// cancelTimeout limits how long the engine may take to cancel a build.
const cancelTimeout = 10 * time.Second

// traceID marks BuildKit's progress messages in an answer.
const traceID = "moby.buildkit.trace"

// minBuildKitAPI is the first API version in which BuildKit builds in a session:
// https://docs.docker.com/reference/api/engine/version-history/#v139-api-changes
const minBuildKitAPI = "1.39"

// builderOf returns the builder to use: BuildKit if the engine has it. The engine's own report does not help:
// older engines leave it empty, so that the docker command chooses.
func builderOf(ctx context.Context, engine Engine) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ping, err := engine.Ping(ctx)
	if err != nil {
		return "", coded(err, "get the version of the Docker engine")
	}
	if ping.OSType == "linux" && dockerapi.VersionAtLeast(ping.APIVersion, minBuildKitAPI) {
		return BuildKit, nil
	}
	return Classic, nil
}

// byBuildKit builds in a session. BuildKit uses it to request the files of the context that it does not have.
func byBuildKit(ctx context.Context, engine Engine, spec Spec, hash string, log func(string)) (id string, err error) {
	listed, err := spec.list()
	if err != nil {
		return "", err
	}
	if listed.hash != hash {
		return "", spec.changed(hash, listed.hash)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	files := spec.buildContext(listed, stop)
	s, err := openSession(ctx, engine, spec, files)
	if err != nil {
		return "", err
	}
	options := spec.buildOptions(hash)
	options.RemoteContext = "client-session"
	options.Version, options.SessionID, options.BuildID = dockerapi.BuilderBuildKit, s.ID(), s.ID()
	id, err = carryOut(ctx, engine, spec, nil, options, log)
	if ctx.Err() != nil {
		err = errors.Join(err, cancelBuild(ctx, engine, options.BuildID))
	}
	if sessionErr := s.close(); err != nil && ctx.Err() == nil && sessionErr != nil {
		err = errors.Join(err, sessionErr)
	}
	if broken := files.broken(); broken != nil { // the actual cause
		return "", broken
	}
	return id, err
}

// buildSession is the connection over which BuildKit requests files and secrets.
type buildSession struct {
	*session.Session
	ended chan error // one value, when the connection has ended
}

// openSession opens a session that ends with ctx or by close.
func openSession(ctx context.Context, engine Engine, spec Spec, files *buildContext) (*buildSession, error) {
	s, err := session.NewSession(ctx, files.key)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "open a session with BuildKit: %w", err)
	}
	values := make(map[string][]byte, len(spec.Secrets))
	for id, secret := range spec.Secrets {
		values[id] = []byte(secret)
	}
	s.Allow(secretsprovider.FromMap(values))
	if spec.Registries != nil {
		s.Allow(credentials{registries: spec.Registries})
	}
	s.Allow(filesync.NewFSSyncProvider(files.dirs))
	opened := &buildSession{s, make(chan error, 1)}
	go func() {
		opened.ended <- s.Run(ctx, func(ctx context.Context, proto string, meta map[string][]string) (net.Conn, error) {
			return engine.DialHijack(ctx, "/session", proto, meta)
		})
	}()
	return opened, nil
}

// close ends the session and returns its earlier error, if any.
func (s *buildSession) close() error {
	_ = s.Close() // the connection may already be closed
	return <-s.ended
}

// cancelBuild cancels a build whose caller is gone.
func cancelBuild(ctx context.Context, engine Engine, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if err := engine.BuildCancel(ctx, id); err != nil {
		return coded(err, "stop build %s", id)
	}
	return nil
}

// trace converts BuildKit's progress into log lines: the name of each step that starts, its output, and its
// error.
type trace struct {
	lines *tail
	begun map[string]bool // by step digest
}

func (t *trace) read(m dockerapi.Message) error {
	var encoded []byte
	if err := json.Unmarshal(*m.Aux, &encoded); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "read BuildKit's progress: %w", err)
	}
	var status control.StatusResponse
	if err := proto.Unmarshal(encoded, &status); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "read BuildKit's progress: %w", err)
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
