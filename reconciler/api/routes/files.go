package routes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/bodies"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/stream"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *Routes) registerFiles(d *document.Document) {
	const path = "/v1/leases/{id}/files"
	tags := []string{"files"}
	either := map[string]*huma.MediaType{wire.Tar: document.Binary(), wire.OctetStream: document.Binary()}
	document.AddRaw(d, sandbox.ScopeLease, huma.Operation{
		OperationID: "write-files", Method: http.MethodPut, Path: path, Tags: tags,
		Summary: "Write files into a lease's sandbox",
		Description: "Content-Type " + wire.Tar + " is unpacked under path. Any other content type is the content of " +
			"the one file that path names, which is replaced atomically.",
		RequestBody: &huma.RequestBody{Required: true, Content: either},
		Responses:   map[string]*huma.Response{"204": {Description: "Written."}},
	}, s.writeFiles)
	document.AddRaw(d, sandbox.ScopeLease, huma.Operation{
		OperationID: "read-files", Method: http.MethodGet, Path: path, Tags: tags,
		Summary: "Read files out of a lease's sandbox",
		Description: "With Accept: " + wire.Tar +
			" a file or directory as tar, whose names are relative to its parent; otherwise the content of one file.",
		Responses: map[string]*huma.Response{"200": {Description: "The files.", Content: either}},
	}, s.readFiles)
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "remove-file", Method: http.MethodDelete,
		Path: path, Tags: tags,
		Summary: "Delete a file or directory in a lease's sandbox", DefaultStatus: http.StatusNoContent}, removeFile)
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "list-files", Method: http.MethodGet,
		Path: path + "/list", Tags: tags,
		Summary: "List a directory in a lease's sandbox",
		Description: "By name in the order of bytes. Names that are not UTF-8 come in base64; a query has them " +
			"percent-encoded."}, listFiles)
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "stat-file", Method: http.MethodGet,
		Path: path + "/stat", Tags: tags,
		Summary: "Describe a file, directory or symlink in a lease's sandbox"}, statFile)
}

// FilePath names a path in a lease's sandbox. Exported for huma, see EnvironmentPath.
type FilePath struct {
	LeaseRef
	Path string `query:"path" required:"true" doc:"In /workspace or /data; relative paths start at /workspace."`
}

// FileLimit limits the content of a single file.
type FileLimit struct {
	MaxBytes int64 `query:"max_bytes" doc:"Maximum size of a single file. At most, and by default, 1 GiB."`
}

type writeFilesInput struct {
	FilePath
	FileLimit
	Mode string `query:"mode" doc:"Permissions of a single file, octal. Default 0644." pattern:"^0?[0-7]{3}$"`
}

func (s *Routes) writeFiles(w http.ResponseWriter, r *http.Request, service service.Service,
	in *writeFilesInput) error {
	if err := writeInto(r, service, in); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func writeInto(r *http.Request, service service.Service, in *writeFilesInput) error {
	if bodies.MediaType(r) == wire.Tar {
		return service.WriteFiles(r.Context(), in.ref(), in.Path, r.Body)
	}
	mode, err := wire.ParseFileMode(in.Mode)
	if err != nil {
		return sandbox.InvalidFields("file", []sandbox.Field{{Name: "mode", Problem: err.Error()}})
	}
	return service.WriteFile(r.Context(), in.ref(),
		sandbox.FileWrite{Path: in.Path, Mode: mode, MaxBytes: in.MaxBytes}, r.Body)
}

type readFilesInput struct {
	FilePath
	FileLimit
}

func (s *Routes) readFiles(w http.ResponseWriter, r *http.Request, service service.Service, in *readFilesInput) error {
	read := readOne
	if bodies.Accepts(r, wire.Tar) {
		read = readTar
	}
	content, err := read(w, r, service, in)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // only read
	s.send(w, r, content)
	return nil
}

// send sends content after the headers. After an error it panics: only an aborted response tells the client.
func (s *Routes) send(w http.ResponseWriter, r *http.Request, content io.Reader) {
	out := stream.NewSteady(w, s.Stream.Timeout)
	defer out.Extend()
	if _, err := io.Copy(out, content); err != nil {
		exchange.Of(r.Context()).Cause = err
		panic(http.ErrAbortHandler)
	}
}

func readOne(w http.ResponseWriter, r *http.Request, service service.Service,
	in *readFilesInput) (io.ReadCloser, error) {
	file, err := service.ReadFile(r.Context(), in.ref(), sandbox.FileRead{Path: in.Path, MaxBytes: in.MaxBytes})
	if err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", wire.OctetStream)
	w.Header().Set("Content-Length", strconv.FormatInt(file.Size, 10))
	return file.ReadCloser, nil
}

func readTar(w http.ResponseWriter, r *http.Request, service service.Service,
	in *readFilesInput) (io.ReadCloser, error) {
	archive, err := service.ReadFiles(r.Context(), in.ref(), in.Path)
	if err != nil {
		return nil, err
	}
	first := make([]byte, 4096)
	n, err := io.ReadFull(archive, first) // an error before the first bytes still gets its status
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.Join(err, archive.Close())
	}
	w.Header().Set("Content-Type", wire.Tar)
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(first[:n]), archive), archive}, nil
}

func removeFile(ctx context.Context, service service.Service, in *struct {
	FilePath
	Recursive bool `query:"recursive" doc:"Delete a directory and its contents."`
}) (*struct{}, error) {
	return nil, service.RemoveFile(ctx, in.ref(), sandbox.FileRemoval{Path: in.Path, Recursive: in.Recursive})
}

func listFiles(ctx context.Context, service service.Service, in *struct {
	FilePath
	After string `query:"after" doc:"The last name of the previous page."`
	Limit int    `query:"limit" doc:"Page size, 1 to 1000. Default 1000." minimum:"1" maximum:"1000"`
}) (*reply[wire.FilePage], error) {
	files, err := service.ListFiles(ctx, in.ref(), sandbox.FileQuery{Path: in.Path, After: in.After, Limit: in.Limit})
	page := wire.FilePage{Files: make([]wire.FileInfo, len(files))}
	for i, f := range files {
		page.Files[i] = wire.FileInfoOf(f)
	}
	return replyWith(page, err)
}

func statFile(ctx context.Context, service service.Service, in *FilePath) (*reply[wire.FileInfo], error) {
	info, err := service.StatFile(ctx, in.ref(), in.Path)
	return replyWith(wire.FileInfoOf(info), err)
}
