//go:build linux

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/files"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// problem reports an error of a helper.
func problem(err error) wire.Result {
	if err == nil {
		return wire.Result{}
	}
	return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
}

func invalid(format string, args ...any) wire.Result {
	return wire.Result{Problem: wire.ProblemInvalid, Message: "refused: " + fmt.Sprintf(format, args...)}
}

// runOnPath works on a path, which may be encoded, as this process's user.
func runOnPath(op channel.Op, p string, encoded bool, out *wire.Writer) wire.Result {
	r := channel.Request{Op: op, Path: []byte(p)}
	if encoded {
		var err error
		if r.Path, err = base64.StdEncoding.DecodeString(p); err != nil {
			return invalid("the path %q is not in base64", p)
		}
	}
	return files.Own().Serve(context.Background(), r, os.Stdin, out)
}

// runFile works on one path, as a request in JSON says.
func runFile(request string, out *wire.Writer) wire.Result {
	r := channel.Request{Op: channel.OpFile, File: new(wire.FileRequest)}
	if err := json.Unmarshal([]byte(request), r.File); err != nil {
		return invalid("the request cannot be read: %v", err)
	}
	return files.Own().Serve(context.Background(), r, os.Stdin, out)
}

// runSecrets replaces the secrets with those on the standard input.
func runSecrets(out *wire.Writer) wire.Result {
	return files.Own().Serve(context.Background(), channel.Request{Op: channel.OpSecrets}, os.Stdin, out)
}

// runSave packs a directory while nothing else runs in the sandbox, so that the archive is one moment's. With s.End, all
// else is ended before, for good.
func runSave(dir string, s channel.Save, out io.Writer) wire.Result {
	if s.End {
		endOthers()
	}
	goOn, err := standStill()
	defer goOn()
	if err != nil {
		return problem(err)
	}
	return files.Own().Save(context.Background(), dir, s, out)
}
