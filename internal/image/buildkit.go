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

// cancelTimeout bounds how long the engine may take to give up a build.
const cancelTimeout = 10 * time.Second

// traceID marks the messages of an answer in which BuildKit tells what it does.
const traceID = "moby.buildkit.trace"

// minBuildKitAPI is the first version of the engine's API by which BuildKit builds in a session.
// https://docs.docker.com/reference/api/engine/version-history/#v139-api-changes
const minBuildKitAPI = "1.39"

// builderOf returns the builder to take: BuildKit where the engine has it. What it says of its builder is no help:
// an older one leaves it empty, for what its own command then chooses.
func builderOf(ctx context.Context, engine Engine) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ping, err := engine.Ping(ctx)
	if err != nil {
		return "", coded(err, "ask the Docker engine for its version")
	}
	if ping.OSType == "linux" && dockerapi.VersionAtLeast(ping.APIVersion, minBuildKitAPI) {
		return BuildKit, nil
	}
	return Classic, nil
}

// byBuildKit carries a build out in a session of its own, by which BuildKit asks for the files of the context
// that it does not have yet.
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
	files := spec.offer(listed, stop)
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
	if broken := files.broken(); broken != nil { // which was the cause
		return "", broken
	}
	return id, err
}

// buildSession is the connection by which BuildKit asks for files and secrets.
type buildSession struct {
	*session.Session
	ended chan error // one value, when the connection has ended
}

// openSession opens a session that ends with ctx or by close.
func openSession(ctx context.Context, engine Engine, spec Spec, files *offer) (*buildSession, error) {
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

func (t *trace) read(m dockerapi.Message) error {
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
