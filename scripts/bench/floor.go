package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// floor runs commands and writes files on this machine behind the API of a reconciler, without a sandbox, limits or
// accounting. It commits a row before and after a command, as the record of a command needs. Its time is the minimum
// for any reconciler.
type floor struct {
	service.Service // nil: the API only runs commands and writes files

	rows *rows
	ids  sandbox.IDs
	dir  string // receives files
}

// Exec implements service.Execs.
func (f floor) Exec(ctx context.Context, _ sandbox.LeaseRef, r sandbox.ExecRequest) (res sandbox.ExecResult,
	err error) {
	id := f.ids(sandbox.SandboxIDLength)
	if err := f.rows.store(id, []byte{}); err != nil {
		return res, err
	}
	var out, problems bytes.Buffer
	command := exec.CommandContext(ctx, r.Command[0], r.Command[1:]...)
	command.Stdin, command.Stdout, command.Stderr = r.Stdin, &out, &problems
	if r.Stdout != nil {
		command.Stdout, command.Stderr = io.MultiWriter(&out, r.Stdout), io.MultiWriter(&problems, r.Stderr)
	}
	err = command.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		res.ExitCode, err = ended.ExitCode(), nil
	}
	if err != nil {
		return res, err
	}
	res.Stdout, res.Stderr = out.Bytes(), problems.Bytes()
	return res, f.rows.store(id+"-ended", append([]byte{}, res.Stdout...)) // a row must not be NULL
}

// WriteFiles implements service.Leases: it unpacks files into a directory of this machine.
func (f floor) WriteFiles(_ context.Context, _ sandbox.LeaseRef, _ string, content io.Reader) error {
	dir, err := os.OpenRoot(f.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	for archive := tar.NewReader(content); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := writeFile(dir, h, archive); err != nil {
			return err
		}
	}
}

func writeFile(dir *os.Root, h *tar.Header, content io.Reader) error {
	if err := dir.Remove(h.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := dir.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(h.Mode))
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// serveFloor serves the floor until the process ends, and prints its URL.
func serveFloor(token, rowsFile string) error {
	rows, err := openRows(context.Background(), rowsFile)
	if err != nil {
		return err
	}
	go rows.run(context.Background()) // ends with the process
	known, err := access.MakeToken("bench", token)
	if err != nil {
		return err
	}
	secret, err := webhook.ParseSecret(webhook.NewSecret())
	if err != nil {
		return err
	}
	handler, err := api.New(api.Config{
		Service: floor{rows: rows, ids: sandbox.RandomIDs, dir: filepath.Dir(rowsFile)},
		Tokens:  []access.Token{known}, Secrets: webhook.Secrets{secret},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	return (&http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: handler}).Serve(listener)
}

// startFloor serves the floor from another process, with a database of the given name. It returns a client; stop ends
// the process.
func startFloor(ctx context.Context, s *stage, name string) (_ service.Service, stop func() error, err error) {
	token := access.NewToken()
	url, stop, err := startSelf(ctx, "-floor", token, "-rows", filepath.Join(s.state, "floor-"+name+".db"))
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(client.Config{URL: url, Token: token})
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return c, stop, nil
}
