package api

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/http"
	"path"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/client/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

func (s *server) registerFiles(d *document) {
	either := map[string]*huma.MediaType{wire.Tar: binary(), wire.OctetStream: binary()}
	addRaw(d, huma.Operation{
		OperationID: "write-files", Method: http.MethodPut, Path: "/v1/leases/{id}/files", Tags: []string{"leases"},
		Summary:     "Write files into a lease's sandbox",
		Description: "Content-Type " + wire.Tar + " is unpacked under path; any other is the content of the one file that path names.",
		RequestBody: &huma.RequestBody{Required: true, Content: either},
		Responses:   map[string]*huma.Response{"204": {Description: "Written."}},
	}, s.writeFiles)
	addRaw(d, huma.Operation{
		OperationID: "read-files", Method: http.MethodGet, Path: "/v1/leases/{id}/files", Tags: []string{"leases"},
		Summary:     "Read files out of a lease's sandbox",
		Description: "With Accept: " + wire.Tar + " a file or directory as tar, whose names are relative to its parent; otherwise the content of one file.",
		Responses:   map[string]*huma.Response{"200": {Description: "The files.", Content: either}},
	}, s.readFiles)
}

// defaultFileMode is the mode of a file that is written without one.
const defaultFileMode = "0644"

type writeFilesInput struct {
	LeaseRef
	Path string `query:"path" required:"true" doc:"In /workspace or /data; relative paths begin at /workspace."`
	Mode string `query:"mode" doc:"Permissions of a single file, octal. Default 0644." pattern:"^[0-7]{3,4}$"`
}

func (s *server) writeFiles(w http.ResponseWriter, r *http.Request, service sandbox.Service, in *writeFilesInput) error {
	dir, content := in.Path, io.Reader(r.Body)
	if mediaType(r) != wire.Tar {
		var err error
		if dir, content, err = tarOfOne(r, in, s.now()); err != nil {
			return err
		}
	}
	if err := service.WriteFiles(r.Context(), in.ref(), dir, content); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// tarOfOne presents a request's body as a tar stream with one file, without holding it in memory.
func tarOfOne(r *http.Request, in *writeFilesInput, now time.Time) (dir string, stream io.Reader, err error) {
	if r.ContentLength < 0 {
		return "", nil, httpProblem(http.StatusLengthRequired, "a file needs a Content-Length; send a stream of unknown length as "+wire.Tar)
	}
	if in.Mode == "" {
		in.Mode = defaultFileMode
	}
	mode, err := strconv.ParseInt(in.Mode, 8, 64)
	if err != nil {
		return "", nil, badBody(err)
	}
	file, err := sandbox.CleanPath(in.Path)
	if err != nil {
		return "", nil, sandbox.InvalidFields("file", []sandbox.Field{{Name: "path", Problem: err.Error()}})
	}
	var header, trailer bytes.Buffer
	err = tar.NewWriter(&header).WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: path.Base(file), Size: r.ContentLength, Mode: mode, ModTime: now,
	})
	if err != nil {
		return "", nil, sandbox.InvalidFields("file", []sandbox.Field{{Name: "path", Problem: err.Error()}})
	}
	const block = 512 // of the tar format: content is padded to blocks, two empty ones end the archive
	trailer.Write(make([]byte, (block-r.ContentLength%block)%block+2*block))
	return path.Dir(file), io.MultiReader(&header, r.Body, &trailer), nil
}

type readFilesInput struct {
	LeaseRef
	Path string `query:"path" required:"true" doc:"In /workspace or /data; relative paths begin at /workspace."`
}

func (s *server) readFiles(w http.ResponseWriter, r *http.Request, service sandbox.Service, in *readFilesInput) error {
	archive, err := service.ReadFiles(r.Context(), in.ref(), in.Path)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }() // only read
	var content io.Reader
	if accepts(r, wire.Tar) {
		first := make([]byte, 4096)
		n, err := io.ReadFull(archive, first) // an error that comes with the first bytes still gets its status
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		content = io.MultiReader(bytes.NewReader(first[:n]), archive)
		w.Header().Set("Content-Type", wire.Tar)
	} else {
		files := tar.NewReader(archive)
		file, err := files.Next()
		if err != nil {
			return err
		}
		if file.Typeflag != tar.TypeReg {
			return sandbox.InvalidFields("file", []sandbox.Field{{Name: "path", Problem: "is not a regular file: ask for it with Accept: " + wire.Tar}})
		}
		content = files
		w.Header().Set("Content-Type", wire.OctetStream)
		w.Header().Set("Content-Length", strconv.FormatInt(file.Size, 10))
	}
	if _, err := io.Copy(w, content); err != nil {
		exchangeOf(r.Context()).cause = err
		panic(http.ErrAbortHandler) // the status is out: a cut connection is what tells the reader
	}
	return nil
}

func bytesText(n int64) string {
	if n >= 1<<20 {
		return strconv.FormatInt(n>>20, 10) + " MiB"
	}
	return strconv.FormatInt(n>>10, 10) + " KiB"
}
