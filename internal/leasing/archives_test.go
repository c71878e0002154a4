package leasing_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// archiveServer serves objects to requests with the right header or signature.
type archiveServer struct {
	*httptest.Server
	objects map[string][]byte
	asked   atomic.Int64
}

func newArchiveServer(t *testing.T, limits ...gitmirror.Limits) (*archiveServer, *gitmirror.Store) {
	t.Helper()
	b := &archiveServer{objects: make(map[string][]byte)}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.asked.Add(1)
		content, found := b.objects[r.URL.Path]
		switch {
		case !found:
			http.NotFound(w, r)
		case r.Header.Get("X-Key") != secretValue && r.URL.Query().Get("signature") != secretValue:
			http.Error(w, "no", http.StatusForbidden)
		default:
			_, _ = w.Write(content) // the client reports the error
		}
	}))
	t.Cleanup(b.Close)
	config := gitmirror.Config{Dir: t.TempDir(), Allow: []string{b.URL}}
	for _, l := range limits {
		config.Limits = l
	}
	store, err := gitmirror.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return b, store
}

// serve serves a file, and returns it in the form of an environment's setting.
func (b *archiveServer) serve(name string, content []byte) sandbox.Archive {
	b.objects["/"+name] = content
	sum := sha256.Sum256(content)
	return sandbox.Archive{
		URL: b.URL + "/" + name, SHA256: hex.EncodeToString(sum[:]), Target: "/workspace/" + name[:3],
		Credential: "token", Header: "X-Key",
	}
}

// packed serves a compressed tar stream with the content that write makes.
func (b *archiveServer) packed(t *testing.T, name string, compress func(io.Writer) (io.WriteCloser, error),
	write func(w *tar.Writer) error) sandbox.Archive {
	t.Helper()
	var content bytes.Buffer
	z, err := compress(&content)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	if err := errors.Join(write(w), w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.serve(name, content.Bytes())
}

// put serves an archive of one file.
func (b *archiveServer) put(t *testing.T, name string, compress func(io.Writer) (io.WriteCloser, error)) sandbox.Archive {
	t.Helper()
	return b.packed(t, name, compress, func(w *tar.Writer) error {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "src/README", Mode: 0o644, Size: 5})
		_, writeErr := io.WriteString(w, "hello")
		return errors.Join(err, writeErr)
	})
}

func gzipped(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
func zstded(w io.Writer) (io.WriteCloser, error)  { return zstd.NewWriter(w) }

func TestArchivesAreUnpackedAndTheirCredentialIsNowhere(t *testing.T) {
	b, store := newArchiveServer(t)
	archives := []sandbox.Archive{b.put(t, "one.tar.gz", gzipped), b.put(t, "two.tar.zst", zstded)}
	signed := archives[0]
	signed.URL, signed.Target, signed.Credential, signed.Header = signed.URL+"?signature="+secretValue, "/workspace", "", ""
	archives = append(archives, signed)
	inWorld(t, func(w *world) {
		w.useMirrors(store)
		b.asked.Store(0)
		w.environment(withSecret, func(p *sandbox.PutEnvironment) { p.Archives = archives })
		for _, agent := range []string{ann, bob} {
			l := w.acquire(agent)
			for _, path := range []string{"/workspace/one/src/README", "/workspace/two/src/README", "/workspace/src/README"} {
				if text, _ := w.backend.FileOf(l.SandboxID, path); text != "hello" {
					t.Errorf("%s has %q", path, text)
				}
			}
			for name, text := range w.backend.Files(l.SandboxID) {
				if strings.Contains(text, secretValue) {
					t.Errorf("%s has the credential", name)
				}
			}
			if got := w.backend.Secrets(l.SandboxID); len(got) != 0 {
				t.Errorf("the sandbox got %d secrets", len(got))
			}
		}
		if n := b.asked.Load(); n > 3 { // the databases of a test share the cache
			t.Errorf("the bucket was asked %d times for 3 archives", n)
		}
	})
}

func TestAnArchiveThatCannotBeUnpackedFailsTheLease(t *testing.T) {
	b, store := newArchiveServer(t)
	good := b.put(t, "one.tar.gz", gzipped)
	changed := good
	changed.SHA256 = strings.Repeat("0", 64)
	absent := good
	absent.URL = b.URL + "/absent.tar?signature=" + secretValue
	forbidden := good
	forbidden.Credential, forbidden.Header = "", ""
	damaged := b.serve("bad.tar.gz", []byte("\x1f\x8bno gzip"))
	for says, a := range map[string]sandbox.Archive{
		"its SHA-256 is " + good.SHA256 + ", not 0000": changed,
		"the server answers with 404 Not Found":        absent,
		"the server answers with 403 Forbidden":        forbidden,
		"it is damaged: unexpected EOF":                damaged,
	} {
		t.Run(says, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.useMirrors(store)
				w.environment(withSecret, func(p *sandbox.PutEnvironment) { p.Archives = []sandbox.Archive{a} })
				_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
				if sandbox.ReasonOf(err) != sandbox.ReasonArchiveFailed || !strings.Contains(err.Error(), says) ||
					strings.Contains(err.Error(), secretValue) {
					w.Errorf("the error is %v, want %q", err, says)
				}
			})
		})
	}
}

// The contract of backends covers more names and links that leave the target: see executortest.
func TestArchivesWithTooMuchOrWithNamesThatLeaveFailTheLease(t *testing.T) {
	b, store := newArchiveServer(t, gitmirror.Limits{PackBytes: 100_000, TreeBytes: 1 << 20})
	zeros := func(w *tar.Writer) error {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Mode: 0o644, Size: 16 << 20})
		_, writeErr := io.CopyN(w, zeroReader{}, 16<<20)
		return errors.Join(err, writeErr)
	}
	noise := func(w *tar.Writer) error {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "noise", Mode: 0o644, Size: 200_000})
		_, writeErr := io.CopyN(w, rand.NewChaCha8([32]byte{}), 200_000)
		return errors.Join(err, writeErr)
	}
	entries := func(w *tar.Writer) (err error) {
		for range 5000 { // each has 512 bytes and no content
			err = errors.Join(err, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "file", Mode: 0o644}))
		}
		return err
	}
	above := func(w *tar.Writer) error {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "../../data/x"})
	}
	const unpacked = "it has more than the limit of 1048576 bytes"
	for name, row := range map[string]struct {
		archive sandbox.Archive
		says    string
	}{
		"a bomb of gzip":   {b.packed(t, "one.tar.gz", gzipped, zeros), unpacked},
		"a bomb of zstd":   {b.packed(t, "two.tar.zst", zstded, zeros), unpacked},
		"too many entries": {b.packed(t, "six.tar.gz", gzipped, entries), unpacked},
		"a file too large": {b.packed(t, "big.tar.gz", gzipped, noise), "more than the limit of 100000 bytes"},
		"no tar stream":    {b.serve("txt.tar", []byte(strings.Repeat("text ", 1000))), "invalid tar header"},
		"nothing":          {b.serve("nil.tar", nil), "it is not a tar archive"},
		"a name above":     {b.packed(t, "abo.tar.gz", gzipped, above), "../../data/x"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.useMirrors(store)
				w.environment(withSecret, func(p *sandbox.PutEnvironment) { p.Archives = []sandbox.Archive{row.archive} })
				_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
				if sandbox.ReasonOf(err) != sandbox.ReasonArchiveFailed || !strings.Contains(err.Error(), row.says) {
					w.Errorf("the error is %v, want %q", err, row.says)
				}
			})
		})
	}
}

// zeroReader returns zeros without end.
type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestALeaseThatIsReleasedDuringAHangingFetchOfAnArchiveEndsAtOnce(t *testing.T) {
	endsDuringAHangingFetch(t, func(p *sandbox.PutEnvironment, server string) {
		p.Archives = []sandbox.Archive{
			{URL: server + "/a.tar", SHA256: strings.Repeat("0", 64), Target: "/workspace/a"}}
	})
}

func TestArchivesThatAreWrongAreNamed(t *testing.T) {
	_, store := newArchiveServer(t)
	inWorld(t, func(w *world) {
		w.useMirrors(store)
		put := func(backend sandbox.Backend, archives ...sandbox.Archive) error {
			p := sandbox.PutEnvironment{ID: game, Owner: "test"}
			p.Image, p.Backend, p.Archives = "player", backend, archives
			_, err := w.engine.PutEnvironment(w.Context(), p)
			return err
		}
		sum := strings.Repeat("a", 64)
		for want, err := range map[string]error{
			"archives[0].url: the host bucket.example.com is not allowed": put(sandbox.Docker,
				sandbox.Archive{URL: "https://bucket.example.com/a.tar", SHA256: sum, Target: "/workspace/a"}),
			"archives[0].url: must begin with https://": put(sandbox.Docker,
				sandbox.Archive{URL: "ftp://bucket.example.com/a.tar", SHA256: sum, Target: "/workspace/a"}),
			"archives[0].sha256: must be 64": put(sandbox.Docker,
				sandbox.Archive{URL: "https://bucket.example.com/a.tar", SHA256: "A", Target: "/workspace/a"}),
			"archives[0].target: must be /workspace": put(sandbox.Docker,
				sandbox.Archive{URL: "https://bucket.example.com/a.tar", SHA256: sum, Target: "/data/a"}),
			"archives[0].credential_secret: must be the name": put(sandbox.Docker,
				sandbox.Archive{URL: "https://bucket.example.com/a.tar", SHA256: sum, Target: "/workspace", Credential: "absent"}),
			"archives[0].credential_header: must be the name of a header": put(sandbox.Docker,
				sandbox.Archive{URL: "https://bucket.example.com/a.tar", SHA256: sum, Target: "/workspace", Header: "host"}),
			"archives: must not be set on Cloudflare": put(sandbox.Cloudflare,
				sandbox.Archive{URL: "https://bucket.example.com/a.tar", SHA256: sum, Target: "/workspace/a"}),
		} {
			if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), want) {
				t.Errorf("the error is %v, want %q", err, want)
			}
		}
	})
}
