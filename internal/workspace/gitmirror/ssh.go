package gitmirror

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// go-git's own ssh transport is not used: it reads the configuration and the agent of this machine's user, and dials
// without our check of addresses.

// overSSH runs the two programs of git on a server, for one source. Its server must have a known key.
type overSSH struct {
	ctx    context.Context //nolint:containedctx // it exists for one connection
	source Source
	url    *url.URL
	rule   *rule
	// knownHosts is the operator's file, empty for none.
	knownHosts string
	limit      int64
}

// NewUploadPackSession implements transport.Transport.
func (o *overSSH) NewUploadPackSession(*transport.Endpoint, transport.AuthMethod) (transport.UploadPackSession, error) {
	return o.run("git-upload-pack")
}

// NewReceivePackSession implements transport.Transport.
func (o *overSSH) NewReceivePackSession(*transport.Endpoint, transport.AuthMethod) (transport.ReceivePackSession,
	error) {
	return o.run("git-receive-pack")
}

// address is the host and port of the server.
func (o *overSSH) address() string {
	port := o.url.Port()
	if port == "" {
		port = defaultPorts["ssh"]
	}
	return net.JoinHostPort(o.url.Hostname(), port)
}

// config returns how to log in. Errors: Failed.
func (o *overSSH) config() (*ssh.ClientConfig, error) {
	signer, err := ssh.ParsePrivateKey([]byte(o.source.secret()))
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, sandbox.Errorf(sandbox.Failed, "the private key has a passphrase: use one without")
	case err != nil: // its text may repeat the key
		return nil, sandbox.Errorf(sandbox.Failed, "credential_secret is not a private key in the format of OpenSSH or PEM")
	}
	known, err := knownKeys(o.source.KnownHosts, o.knownHosts)
	if err != nil {
		return nil, err
	}
	check := known.HostKeyCallback()
	return &ssh.ClientConfig{
		User: o.url.User.Username(), Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, AuthCallback: oneTry,
		HostKeyAlgorithms: known.HostKeyAlgorithms(o.address()), Timeout: dialTimeout,
		HostKeyCallback: func(_ string, remote net.Addr, key ssh.PublicKey) error {
			err := check(o.address(), remote, key)
			switch {
			case knownhosts.IsHostUnknown(err):
				return sandbox.Errorf(sandbox.Failed, "the server's key %s is in no known_hosts: add its line to known_hosts of "+
					"the repository, or to the operator's file (--workspace-known-hosts)", ssh.FingerprintSHA256(key))
			case err != nil:
				return sandbox.Errorf(sandbox.Failed, "the server's key %s is not the one in known_hosts: check who answers, "+
					"and correct known_hosts if the server has a new key", ssh.FingerprintSHA256(key))
			}
			return nil
		},
	}, nil
}

// oneTry ends a login in which the key was refused, or keys are not accepted at all. The library's own error for this
// has no type.
func oneTry(login *ssh.ClientAuthContext) (ssh.AuthMethod, error) {
	const withKey = "publickey" // RFC 4252
	if slices.Contains(login.TriedMethods, withKey) || !slices.Contains(login.AllowedMethods, withKey) {
		return nil, sandbox.Errorf(sandbox.Failed,
			"the key was not accepted: check credential_secret and the user in the URL")
	}
	return nil, nil
}

// knownKeys reads the lines of a source and the operator's file. The library reads files only.
func knownKeys(lines, file string) (*knownhosts.HostKeyDB, error) {
	f, err := os.CreateTemp("", "sandbox-known-hosts-*")
	if err != nil {
		return nil, cacheError(err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // it was read
	if _, err := io.WriteString(f, lines+"\n"); err != nil {
		return nil, cacheError(errors.Join(err, f.Close()))
	}
	if err := f.Close(); err != nil {
		return nil, cacheError(err)
	}
	if _, err := knownhosts.NewDB(f.Name()); err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "known_hosts cannot be read: use lines as in ~/.ssh/known_hosts")
	}
	files := []string{f.Name()}
	if file != "" {
		files = append(files, file)
	}
	known, err := knownhosts.NewDB(files...)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "--workspace-known-hosts cannot be read: %w", err)
	}
	return known, nil
}

// run logs in and starts a program of git.
func (o *overSSH) run(program string) (_ *sshSession, err error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	conn, err := o.rule.dial(o.ctx, &net.Dialer{Timeout: dialTimeout}, "tcp", o.address())
	if err != nil {
		return nil, err
	}
	s := &sshSession{stop: context.AfterFunc(o.ctx, func() { _ = conn.Close() }), closers: []io.Closer{conn}}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	_ = conn.SetDeadline(time.Now().Add(headerTimeout)) // for the login; without it, the connection fails at once
	login, channels, requests, err := ssh.NewClientConn(conn, o.address(), config)
	if err != nil {
		return nil, loginError(err)
	}
	_ = conn.SetDeadline(time.Time{})
	client := ssh.NewClient(login, channels, requests)
	s.closers = append(s.closers, client)
	session, err := client.NewSession()
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, session)
	in, err := session.StdinPipe()
	if err != nil {
		return nil, err
	}
	s.in = input{in}
	out, err := session.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = &boundedBody{ReadCloser: io.NopCloser(out), left: o.limit, limit: o.limit}
	path := o.url.Path
	if strings.HasPrefix(path, "/~") { // relative to a home directory
		path = path[1:]
	}
	s.receives = program == "git-receive-pack"
	return s, session.Start(program + " '" + path + "'") // a path has no quotes
}

// loginError explains a failed login.
func loginError(err error) error {
	var own *sandbox.Error
	var differ *ssh.AlgorithmNegotiationError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &differ) && differ.What == hostKeys:
		return sandbox.Errorf(sandbox.Failed, "the server has no key of the kinds in known_hosts: check who answers")
	}
	return err
}

// hostKeys is what an ssh.AlgorithmNegotiationError calls the kinds of a server's keys.
const hostKeys = "host key"

// sshSession is a program of git on a server. It speaks version 0 of git's protocol.
type sshSession struct {
	in       io.WriteCloser
	out      io.Reader
	receives bool
	adv      *packp.AdvRefs
	stop     func() bool
	closers  []io.Closer
}

// input is the input of a program. It is not an error if a program ends before it has read everything: it needed no
// more, or its answer says why. The library then returns io.EOF, also from Close.
type input struct{ io.WriteCloser }

func (i input) Write(p []byte) (int, error) {
	n, err := i.WriteCloser.Write(p)
	if errors.Is(err, io.EOF) {
		return len(p), nil
	}
	return n, err
}

// Close implements io.Closer.
func (i input) Close() error {
	if err := i.WriteCloser.Close(); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Close implements io.Closer.
func (s *sshSession) Close() error {
	s.stop()
	for i := len(s.closers) - 1; i >= 0; i-- {
		_ = s.closers[i].Close() // a program that has ended is closed already
	}
	return nil
}

// AdvertisedReferences implements transport.Session.
func (s *sshSession) AdvertisedReferences() (*packp.AdvRefs, error) {
	return s.AdvertisedReferencesContext(context.Background())
}

// AdvertisedReferencesContext implements transport.Session.
func (s *sshSession) AdvertisedReferencesContext(context.Context) (*packp.AdvRefs, error) {
	if s.adv != nil {
		return s.adv, nil
	}
	adv := packp.NewAdvRefs()
	err := adv.Decode(s.out)
	var refused *pktline.ErrorLine
	switch {
	case errors.Is(err, packp.ErrEmptyAdvRefs) && s.receives:
	case errors.Is(err, packp.ErrEmptyAdvRefs), err == nil && adv.IsEmpty() && !s.receives:
		return nil, transport.ErrEmptyRemoteRepository
	case errors.Is(err, packp.ErrEmptyInput), errors.As(err, &refused):
		return nil, transport.ErrRepositoryNotFound
	case err != nil:
		return nil, err
	}
	transport.FilterUnsupportedCapabilities(adv.Capabilities)
	s.adv = adv
	return adv, nil
}

// UploadPack implements transport.UploadPackSession.
func (s *sshSession) UploadPack(_ context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	if err := errors.Join(req.UploadRequest.Encode(s.in), req.UploadHaves.Encode(s.in, true),
		pktline.NewEncoder(s.in).Encodef("done\n"), s.in.Close()); err != nil {
		return nil, err
	}
	answer := packp.NewUploadPackResponse(req)
	return answer, answer.Decode(io.NopCloser(s.out))
}

// ReceivePack implements transport.ReceivePackSession.
func (s *sshSession) ReceivePack(_ context.Context, req *packp.ReferenceUpdateRequest) (*packp.ReportStatus, error) {
	if err := errors.Join(req.Encode(s.in), s.in.Close()); err != nil {
		return nil, err
	}
	report := packp.NewReportStatus()
	return report, report.Decode(demultiplexed(req.Capabilities, s.out))
}

var (
	_ transport.Transport          = (*overSSH)(nil)
	_ transport.UploadPackSession  = (*sshSession)(nil)
	_ transport.ReceivePackSession = (*sshSession)(nil)
)
