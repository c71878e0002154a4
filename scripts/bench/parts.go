package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// parts measures each part of a command over HTTP by itself. This shows the costs that no reconciler can avoid.
type parts struct {
	s      *stage
	lease  sandbox.LeaseRef
	player string
	rows   *rows
	stop   context.CancelFunc
	done   chan struct{}

	commit, start, lookup, file []time.Duration
}

func newParts(ctx context.Context, s *stage, lease sandbox.LeaseRef) (*parts, error) {
	r, err := openRows(ctx, filepath.Join(s.state, "parts.db"))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	p := &parts{
		s: s, lease: lease, rows: r, stop: stop, done: make(chan struct{}),
		player: filepath.Join(s.root, "examples", "quickstart", "player", "bin", "player"),
	}
	go func() { // close ends it
		defer close(p.done)
		r.run(ctx)
	}()
	err = s.reconciler.Service.WriteFile(ctx, lease, sandbox.FileWrite{Path: "/workspace/parts"}, strings.NewReader("x"))
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *parts) close() error {
	p.stop()
	<-p.done
	return p.rows.db.Close()
}

// measure measures one part after the other. The first round of each fills caches.
func (p *parts) measure(ctx context.Context, rounds int) error {
	row := 0
	for _, m := range []struct {
		took *[]time.Duration
		do   func() error
	}{
		{&p.commit, func() error {
			row++
			return p.rows.store(strconv.Itoa(row), []byte("x"))
		}},
		{&p.start, func() error { return p.play(ctx) }},
		{&p.lookup, func() error {
			_, err := p.s.reconciler.Service.GetLease(ctx, p.lease.ID)
			return err
		}},
		{&p.file, func() error {
			_, err := p.s.reconciler.Service.StatFile(ctx, p.lease, "/workspace/parts")
			return err
		}},
	} {
		for round := range rounds + 1 {
			took, err := timed(m.do)
			if err != nil {
				return err
			}
			if round > 0 {
				*m.took = append(*m.took, took)
			}
		}
	}
	return nil
}

// play runs the program without input. It fails, as it does in the sandbox.
func (p *parts) play(ctx context.Context) error {
	err := exec.CommandContext(ctx, p.player).Run()
	if _, ended := errors.AsType[*exec.ExitError](err); ended {
		return nil
	}
	return err
}

func (p *parts) results() []result {
	return []result{
		part("part of a command: a commit of one row by a bare program", p.commit, "two are on its way"),
		part("part of a command: the program by itself, on the host", p.start, "started and waited for"),
		part("part of a command: a request that only reads the ledger", p.lookup, "HTTP, token, rows"),
		part("part of a command: a request that reaches into the sandbox and starts nothing", p.file, "HTTP and the channel"),
	}
}
