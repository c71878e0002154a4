package sdk_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// golang is the driver of the Go client, in the process of the test.
type golang struct {
	*world
	client, game *client.Client
	sessions     map[string]sandbox.Session
	generations  map[string]int64
}

func startGo(w *world) driver {
	w.Helper()
	key, err := webhook.ParseSecret(w.secret)
	if err != nil {
		w.Fatal(err)
	}
	config := client.Config{URL: w.proxy.url, Token: w.token, Attempts: 8, WaitMin: 50 * time.Millisecond}
	g := &golang{world: w, sessions: map[string]sandbox.Session{}, generations: map[string]int64{}}
	if g.client, err = client.New(config); err != nil {
		w.Fatal(err)
	}
	config.Token = w.player
	config.Sign = func(h http.Header, id string, body []byte) error { return key.Sign(h, id, time.Now(), body) }
	if g.game, err = client.New(config); err != nil {
		w.Fatal(err)
	}
	return g
}

// asked holds the arguments of all operations.
type asked struct {
	Lease, Agent, Environment, TTL, ID, Path, Content, Name, Session, Stream, Type, Reason, Secret, Body, Method string
	Command                                                                                                      any
	Stdin, FailAtLine, Files                                                                                     *string
	Env                                                                                                          map[string]string
	Cwd, Log, Timeout                                                                                            string
	AgentDID                                                                                                     string `json:"agent_did"`
	Verifier, Recursive, Exit, Follow, Restart                                                                   bool
	OutputLimit                                                                                                  int `json:"output_limit"`
	Mode                                                                                                         fs.FileMode
	Port, Count                                                                                                  int
	Offset, At, Now, Generation                                                                                  int64
	Collect, Secrets                                                                                             []string
	Headers                                                                                                      map[string]string
	Settings                                                                                                     *sandbox.LeaseSettings
	Args                                                                                                         []any
	Query                                                                                                        map[string]any
}

func (g *golang) do(op string, given args, line func(stream, text string)) (any, *failure) {
	g.Helper()
	encoded, err := json.Marshal(given)
	if err != nil {
		g.Fatal(err)
	}
	var a asked
	if err := json.Unmarshal(encoded, &a); err != nil {
		g.Fatal(err)
	}
	if fail, ok := given["fail_at_line"].(string); ok {
		a.FailAtLine = &fail
	}
	answer, err := g.answer(op, a, line)
	var e *sandbox.Error
	switch {
	case errors.As(err, &e):
		f := &failure{Code: string(e.Code), Reason: string(e.Reason), Message: e.Message, Retryable: sandbox.IsRetryable(e)}
		for _, field := range e.Fields {
			f.Fields = append(f.Fields, field.Name)
		}
		return nil, f
	case err != nil:
		return nil, &failure{Message: err.Error()}
	}
	if encoded, err = json.Marshal(answer); err != nil {
		g.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(encoded, &plain); err != nil {
		g.Fatal(err)
	}
	return plain, nil
}

func (g *golang) answer(op string, a asked, line func(stream, text string)) (any, error) {
	ctx, ref := g.Context(), sandbox.LeaseRef{ID: a.Lease, Generation: g.generations[a.Lease]}
	exec := sandbox.ExecRef{LeaseID: a.Lease, ID: a.ID}
	switch op {
	case "run":
		return g.run(ctx, ref, "", a, line)
	case "run_in_session":
		s := g.sessions[a.Session]
		return g.run(ctx, sandbox.LeaseRef{ID: s.LeaseID, Generation: s.Generation}, s.ID, a, line)
	case "start":
		x, err := g.client.StartExec(ctx, ref, request(a, ""))
		return x.ID, err
	case "output":
		streams := map[sandbox.ExecStream]*bytes.Buffer{sandbox.Stdout: {}, sandbox.Stderr: {}}
		for stream, into := range streams {
			if err := g.follow(ctx, exec, stream, into); err != nil {
				return nil, err
			}
		}
		end, err := g.wait(ctx, exec)
		return map[string]any{"stdout": streams[sandbox.Stdout].Bytes(), "stderr": streams[sandbox.Stderr].Bytes(),
			"exit_code": end.ExitCode}, err
	case "read_output":
		return content(g.client.ReadExec(ctx,
			sandbox.OutputRequest{ExecRef: exec, Stream: sandbox.ExecStream(a.Stream), Offset: a.Offset}))
	case "cancel":
		x, err := g.client.CancelExec(ctx, exec)
		return x.State, err
	case "run_once":
		return g.runOnce(ctx, a, line)
	default:
		return g.onLease(ctx, op, ref, a)
	}
}

// onLease performs operations on a lease and on reports.
func (g *golang) onLease(ctx context.Context, op string, ref sandbox.LeaseRef, a asked) (any, error) {
	switch op {
	case "lease":
		got, err := g.client.Acquire(ctx, sandbox.Acquire{AgentDID: a.Agent, EnvironmentID: a.Environment})
		g.generations[got.Lease.ID] = got.Lease.Generation
		return got.Lease, err
	case "condition", "bearer_condition":
		sender := g.game
		if op == "bearer_condition" {
			sender = g.client
		}
		if a.ID == "" {
			a.ID = sandbox.RandomIDs(16)
		}
		return sender.Deliver(ctx, sandbox.Delivery{ID: a.ID, Condition: sandbox.Condition{Type: a.Type, Timestamp: time.Now(),
			Data: sandbox.ConditionData{EnvironmentID: a.Environment, AgentDID: a.AgentDID, Generation: a.Generation,
				Reason: a.Reason}}})
	case "sign", "verify":
		return signature(op, a)
	case "events":
		types := []sandbox.EventType{}
		enough := errors.New("enough")
		err := g.client.FollowEvents(ctx, sandbox.EventFilter{LeaseID: a.Lease}, func(e sandbox.Event) error {
			if types = append(types, e.Type); len(types) == a.Count {
				return enough
			}
			return nil
		})
		if errors.Is(err, enough) {
			err = nil
		}
		return types, err
	case "release":
		return g.client.Release(ctx, ref)
	case "renew":
		renew := sandbox.Renew{LeaseRef: ref}
		if a.Settings != nil {
			renew.Settings = a.Settings
		}
		return g.client.Renew(ctx, renew)
	case "sleep":
		return g.client.Sleep(ctx, ref)
	case "wake":
		return g.client.Wake(ctx, ref)
	case "refresh":
		return g.client.GetLease(ctx, a.Lease)
	case "usage":
		return g.client.LeaseUsage(ctx, ref)
	case "health":
		return g.client.LeaseHealth(ctx, ref)
	case "call":
		return g.call(ctx, a)
	default:
		return g.onFiles(ctx, op, ref, a)
	}
}

// onFiles performs operations on files.
func (g *golang) onFiles(ctx context.Context, op string, ref sandbox.LeaseRef, a asked) (any, error) {
	switch op {
	case "start":
		x, err := g.client.StartExec(ctx, ref, request(a, ""))
		return x.ID, err
	case "write_file":
		return nil, g.client.WriteFile(ctx, ref, sandbox.FileWrite{Path: a.Path, Mode: a.Mode}, decoded(a.Content))
	case "read_file":
		return content(g.client.ReadFile(ctx, ref, sandbox.FileRead{Path: a.Path}))
	case "list_files":
		names := []string{}
		for after := ""; ; after = names[len(names)-1] {
			page, err := g.client.ListFiles(ctx, ref, sandbox.FileQuery{Path: a.Path, After: after})
			for _, f := range page {
				names = append(names, f.Name)
			}
			if err != nil || len(page) < sandbox.MaxPage {
				return names, err
			}
		}
	case "stat_file":
		f, err := g.client.StatFile(ctx, ref, a.Path)
		return map[string]any{"name": f.Name, "type": f.Type, "size": f.Size, "mode": fmt.Sprintf("%04o", f.Mode.Perm())}, err
	case "remove_file":
		return nil, g.client.RemoveFile(ctx, ref, sandbox.FileRemoval{Path: a.Path, Recursive: a.Recursive})
	case "write_tar":
		return nil, g.client.WriteFiles(ctx, ref, a.Path, decoded(a.Content))
	case "read_tar":
		return content(g.client.ReadFiles(ctx, ref, a.Path))
	case "start_process":
		return g.client.StartProcess(ctx, ref, sandbox.ProcessSpec{Name: a.Name, Command: command(a.Command)})
	default:
		return g.onProcess(ctx, op, ref, a)
	}
}

// onProcess performs operations on processes.
func (g *golang) onProcess(ctx context.Context, op string, ref sandbox.LeaseRef, a asked) (any, error) {
	process := sandbox.ProcessRef{LeaseRef: ref, Name: a.Name}
	switch op {
	case "start_process":
		return g.client.StartProcess(ctx, ref, sandbox.ProcessSpec{Name: a.Name, Command: command(a.Command)})
	case "wait_process":
		return g.client.WaitProcess(ctx, sandbox.ProcessWait{ProcessRef: process, Log: a.Log, Port: a.Port, Exit: a.Exit,
			Timeout: duration(a.Timeout)})
	case "process":
		return g.client.GetProcess(ctx, process)
	case "processes":
		return g.client.ListProcesses(ctx, a.Lease)
	case "kill_process":
		return g.client.KillProcess(ctx, process)
	case "read_process":
		return content(g.client.ReadProcess(ctx, sandbox.LogRequest{ProcessRef: process, Follow: a.Follow}))
	default:
		return g.onSession(ctx, op, ref, a)
	}
}

// onSession performs operations on sessions.
func (g *golang) onSession(ctx context.Context, op string, ref sandbox.LeaseRef, a asked) (any, error) {
	switch op {
	case "session":
		s, err := g.client.CreateSession(ctx, ref, sandbox.CreateSession{ID: a.ID, Env: a.Env})
		g.sessions[a.ID] = s
		return s, err
	case "close_session":
		return g.client.CloseSession(ctx, sessionRef(g.sessions[a.Session]))
	case "session_events":
		events := [][2]string{}
		err := g.client.FollowSessionEvents(ctx, sandbox.SessionEventFilter{SessionRef: sessionRef(g.sessions[a.Session])},
			func(e sandbox.SessionEvent) error {
				events = append(events, [2]string{string(e.Type), string(e.Data)})
				return nil
			})
		return events, err
	}
	g.Fatalf("unknown operation %s", op)
	return nil, nil
}

// content reads a stream to its end. A stream of the Go client ends with the error of its connection.
func content(r io.ReadCloser, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // only read
	all, err := io.ReadAll(r)
	if err != nil {
		err = sandbox.Errorf(sandbox.Unavailable, "reading: %w", err)
	}
	return all, err
}

// call calls a method by the id of its operation.
func (g *golang) call(ctx context.Context, a asked) (any, error) {
	id := ""
	if len(a.Args) > 0 {
		id, _ = a.Args[0].(string)
	}
	switch a.Method {
	case "get_environment":
		return g.client.GetEnvironment(ctx, id)
	case "list_environments":
		list, err := g.client.ListEnvironments(ctx)
		return map[string]any{"environments": list}, err
	case "list_leases":
		environment, _ := a.Query["environment_id"].(string)
		list, err := g.client.ListLeases(ctx, sandbox.LeaseFilter{EnvironmentID: environment})
		return map[string]any{"leases": list}, err
	case "get_costs":
		environment, _ := a.Query["environment_id"].(string)
		return g.client.Costs(ctx, sandbox.CostQuery{EnvironmentID: environment})
	case "get_exec":
		exec, _ := a.Args[1].(string)
		return g.client.GetExec(ctx, sandbox.ExecRef{LeaseID: id, ID: exec})
	case "list_execs":
		list, err := g.client.ListExecs(ctx, sandbox.ExecFilter{LeaseID: id})
		return map[string]any{"execs": list}, err
	case "put_environment":
		body, err := json.Marshal(a.Args[1])
		put := sandbox.PutEnvironment{ID: id}
		if err == nil {
			err = json.Unmarshal(body, &put)
		}
		if err != nil {
			return nil, err
		}
		return g.client.PutEnvironment(ctx, put)
	}
	g.Fatalf("unknown method %s", a.Method)
	return nil, nil
}

func request(a asked, session string) sandbox.ExecRequest {
	r := sandbox.ExecRequest{ID: a.ID, Env: a.Env, Cwd: a.Cwd, Session: session, Timeout: duration(a.Timeout),
		OutputLimit: a.OutputLimit}
	if a.Verifier {
		r.As = sandbox.AsVerifier
	}
	if text, ok := a.Command.(string); ok && session != "" {
		r.Shell = text
	} else {
		r.Command = command(a.Command)
	}
	return r
}

// run runs a command as a Go program does that must not lose it: it starts the command, and follows its output.
func (g *golang) run(ctx context.Context, ref sandbox.LeaseRef, session string, a asked,
	line func(stream, text string)) (any, error) {
	r := request(a, session)
	var mu sync.Mutex
	out := map[sandbox.ExecStream]*lines{}
	for _, stream := range []sandbox.ExecStream{sandbox.Stdout, sandbox.Stderr} {
		out[stream] = &lines{limit: cmp.Or(a.OutputLimit, 1<<20), line: func(text string) error {
			mu.Lock()
			defer mu.Unlock()
			line(string(stream), text)
			if a.FailAtLine != nil && text == *a.FailAtLine {
				return errors.New("the callback failed")
			}
			return nil
		}}
	}
	finish := func(exit int, timedOut, truncated bool) (any, error) {
		err := errors.Join(out[sandbox.Stdout].end(), out[sandbox.Stderr].end())
		return map[string]any{"exit_code": exit, "stdout": out[sandbox.Stdout].String(), "stderr": out[sandbox.Stderr].String(),
			"timed_out": timedOut, "truncated": truncated || out[sandbox.Stdout].dropped || out[sandbox.Stderr].dropped}, err
	}
	if a.Stdin != nil {
		r.Stdin, r.Stdout, r.Stderr = decoded(*a.Stdin), out[sandbox.Stdout], out[sandbox.Stderr]
		end, err := g.client.Exec(ctx, ref, r)
		if err != nil {
			return nil, err
		}
		return finish(end.ExitCode, end.TimedOut, end.Truncated)
	}
	if r.ID == "" {
		r.ID = "go-" + sandbox.RandomIDs(16)
	}
	x, err := g.client.StartExec(ctx, ref, r)
	if err != nil {
		return nil, err
	}
	exec := sandbox.ExecRef{LeaseID: ref.ID, ID: x.ID}
	failed := make(chan error, len(out))
	for stream, into := range out {
		go func() { failed <- g.follow(ctx, exec, stream, into) }()
	}
	for range out {
		if ended := <-failed; ended != nil {
			_, _ = g.client.CancelExec(ctx, exec) // the caller must see the first error
			err = errors.Join(err, ended)
		}
	}
	if err != nil {
		return nil, err
	}
	end, err := g.wait(ctx, exec)
	if err != nil {
		return nil, err
	}
	if end.ExitCode == nil {
		return nil, fmt.Errorf("command %s is %s: %s", end.ID, end.State, end.Error)
	}
	return finish(*end.ExitCode, end.TimedOut, end.Truncated)
}

// follow copies the output of a command, and continues at its position after a lost connection.
func (g *golang) follow(ctx context.Context, exec sandbox.ExecRef, stream sandbox.ExecStream, into io.Writer) error {
	counted := &counter{Writer: into}
	for failures := 0; ; failures++ {
		reached := counted.n
		r, err := g.client.ReadExec(ctx,
			sandbox.OutputRequest{ExecRef: exec, Stream: stream, Offset: counted.n, Follow: true})
		if err == nil {
			_, err = io.Copy(counted, r)
			_ = r.Close() // only read
		}
		if counted.n > reached {
			failures = 0
		}
		var e *sandbox.Error
		switch {
		case err == nil, counted.failed != nil, errors.As(err, &e) && !sandbox.IsRetryable(e), failures > 8:
			return errors.Join(counted.failed, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond << failures):
		}
	}
}

func (g *golang) wait(ctx context.Context, exec sandbox.ExecRef) (sandbox.Exec, error) {
	for {
		x, err := g.client.GetExec(ctx, exec)
		if err != nil || x.State != sandbox.ExecRunning {
			return x, err
		}
	}
}

type counter struct {
	io.Writer
	n      int64
	failed error
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n, c.failed = c.n+int64(n), err
	return n, err
}

// lines collects output up to a limit, and forwards whole lines.
type lines struct {
	bytes.Buffer
	limit   int
	dropped bool
	rest    []byte
	line    func(text string) error
}

func (l *lines) Write(b []byte) (int, error) {
	kept := b[:min(len(b), l.limit-l.Len())]
	l.dropped = l.dropped || len(kept) < len(b)
	l.Buffer.Write(kept)
	l.rest = append(l.rest, b...)
	for {
		before, after, found := bytes.Cut(l.rest, []byte("\n"))
		if !found {
			return len(b), nil
		}
		l.rest = slices.Clone(after)
		if err := l.line(string(before)); err != nil {
			return len(b), err
		}
	}
}

func (l *lines) end() error {
	if len(l.rest) == 0 {
		return nil
	}
	return l.line(string(l.rest))
}

func (g *golang) runOnce(ctx context.Context, a asked, line func(stream, text string)) (any, error) {
	out := &lines{limit: 1 << 20, line: func(text string) error { line("stdout", text); return nil }}
	var files bytes.Buffer
	r := sandbox.RunRequest{EnvironmentID: a.Environment, Collect: a.Collect, Collected: &files, ExecRequest: request(a, "")}
	r.Stdout = out
	if a.Files != nil {
		r.Files = decoded(*a.Files)
	}
	if a.Stdin != nil {
		r.Stdin = decoded(*a.Stdin)
	}
	end, err := g.client.Run(ctx, r)
	if err != nil {
		return nil, err
	}
	return map[string]any{"exit_code": end.ExitCode, "stdout": out.String(), "stderr": string(end.Stderr),
		"files": files.Bytes(), "missing": append([]string{}, end.Missing...), "status": end.Lease.Status}, out.end()
}

func signature(op string, a asked) (any, error) {
	body, err := io.ReadAll(decoded(a.Body))
	if err != nil {
		return nil, err
	}
	if op == "sign" {
		secret, err := webhook.ParseSecret(a.Secret)
		if err != nil {
			return nil, err
		}
		h, headers := http.Header{}, map[string]string{}
		err = secret.Sign(h, a.ID, time.Unix(a.At, 0), body)
		for name := range h {
			headers[strings.ToLower(name)] = h.Get(name)
		}
		return headers, err
	}
	var secrets webhook.Secrets
	for _, text := range a.Secrets {
		secret, err := webhook.ParseSecret(text)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, secret)
	}
	h := http.Header{}
	for name, value := range a.Headers {
		h.Set(name, value)
	}
	id, _, err := secrets.Verify(h, body, time.Unix(a.Now, 0))
	return id, err
}

func sessionRef(s sandbox.Session) sandbox.SessionRef {
	return sandbox.SessionRef{LeaseID: s.LeaseID, Generation: s.Generation, ID: s.ID}
}

func command(given any) []string {
	if text, ok := given.(string); ok {
		return []string{"/bin/sh", "-c", text}
	}
	list, _ := given.([]any)
	words := make([]string, len(list))
	for i, word := range list {
		words[i], _ = word.(string)
	}
	return words
}

func duration(text string) sandbox.Duration {
	d, _ := time.ParseDuration(text)
	return sandbox.Duration(d)
}

func decoded(text string) io.Reader {
	return base64.NewDecoder(base64.StdEncoding, strings.NewReader(text))
}
