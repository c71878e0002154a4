package client

import (
	"context"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Run implements service.Runs. It streams both ways and does not retry: a lost response is UnknownOutcome, and the
// sandbox is destroyed anyway. The client's token owns the run.
func (c *Client) Run(ctx context.Context, r sandbox.RunRequest) (sandbox.RunResult, error) {
	timeout := r.Timeout // 0 is the environment's
	r, err := r.Normalize()
	if err != nil {
		return sandbox.RunResult{}, err
	}
	r.Timeout = timeout
	body, sent := io.Pipe()
	form := multipart.NewWriter(sent)
	go func() { // ends when the transport closes the body, or at the end of the input
		sent.CloseWithError(writeRun(form, r))
	}()
	const path = "/v1/runs"
	wait := c.slow + running(r.Timeout) + r.Margin.D()
	resp, err := c.send(ctx, wait, http.MethodPost, path, form.FormDataContentType(), wire.NDJSON, body)
	if err != nil {
		return sandbox.RunResult{}, err
	}
	defer func() { _ = resp.Body.Close() }() // cancels the run if it is not finished
	out := newOutputs(r.ExecRequest)
	out.writers[wire.PartFiles] = r.Collected
	wired, err := readOutput[wire.RunResult](c, path, resp, out)
	if err != nil {
		return sandbox.RunResult{}, err
	}
	result, err := c.result(path, wired.ExecResult)
	return sandbox.RunResult{ExecResult: out.collected(result), Lease: wired.Lease, Missing: wired.Missing}, err
}

// writeRun writes the parts of a request.
func writeRun(form *multipart.Writer, r sandbox.RunRequest) error {
	part, err := form.CreateFormField(wire.PartRun)
	if err != nil {
		return err
	}
	err = json.NewEncoder(part).Encode(wire.RunRequest{
		EnvironmentID: r.EnvironmentID, AgentDID: r.AgentDID, Margin: r.Margin, Collect: r.Collect,
		RunSandbox: wire.RunSandbox{Image: r.Choice.Image, Resources: r.Choice.Resources, Network: r.Choice.Network},
		ExecRequest: wire.ExecRequest{
			Command:     r.Command,
			Env:         r.Env,
			Cwd:         r.Cwd,
			User:        r.User,
			As:          r.As,
			Timeout:     r.Timeout,
			OutputLimit: r.OutputLimit,
		},
	})
	if err != nil {
		return err
	}
	for _, more := range []struct {
		name    string
		content io.Reader
	}{{wire.PartFiles, r.Files}, {wire.PartStdin, r.Stdin}} {
		if more.content == nil {
			continue
		}
		if part, err = form.CreateFormField(more.name); err != nil {
			return err
		}
		if _, err = io.Copy(part, more.content); err != nil {
			return err
		}
	}
	return form.Close()
}
