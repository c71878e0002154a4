package postgrestest

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Proxy is a proxy for a ledger's server that can misbehave. It knows enough of PostgreSQL's protocol to lose
// the answer to a COMMIT, which a plain TCP proxy cannot.
type Proxy struct {
	listener net.Listener
	server   string
	wg       sync.WaitGroup

	mu      sync.Mutex // guards what follows
	links   map[*link]struct{}
	down    bool
	latency time.Duration
	// lose is the number of further commits to carry out without an answer.
	lose int
}

// link is one connection through a proxy.
type link struct {
	client, server *net.TCPConn
	// stranded: nothing more is forwarded, without notice.
	stranded bool
	// loses: the server's next answer is not forwarded.
	loses bool
}

// NewProxy starts a proxy for a server. It ends with the test.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, server: s.url("").Host, links: make(map[*link]struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Through returns the URL of a ledger through the proxy.
func (p *Proxy) Through(t testing.TB, ledger string) string {
	t.Helper()
	u, err := url.Parse(ledger)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	return u.String()
}

// Cut closes all connections.
func (p *Proxy) Cut() { p.each(func(l *link) { l.close() }) }

// Reset resets all connections, like a host that has forgotten them.
func (p *Proxy) Reset() {
	p.each(func(l *link) {
		_ = l.client.SetLinger(0)
		_ = l.server.SetLinger(0)
		l.close()
	})
}

// Strand keeps all connections open but forwards nothing more. New ones work.
func (p *Proxy) Strand() { p.each(func(l *link) { l.stranded = true }) }

// SetDown refuses all connections from now on, or accepts them again.
func (p *Proxy) SetDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.Cut()
	}
}

// SetLatency delays the server's answers.
func (p *Proxy) SetLatency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// LoseCommits carries out the next n commits, and then breaks their connections instead of answering.
func (p *Proxy) LoseCommits(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = n
}

// LeftToLose returns how many of these commits are still to come.
func (p *Proxy) LeftToLose() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lose
}

func (p *Proxy) each(f func(l *link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		f(l)
	}
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) connect(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.server, time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client.(*net.TCPConn), server: server.(*net.TCPConn)} //nolint:forcetypeassert // both are TCP
	p.mu.Lock()
	down := p.down
	p.links[l] = struct{}{}
	p.mu.Unlock()
	if !down {
		var both sync.WaitGroup
		both.Go(func() { p.carry(l, l.client, l.server, p.request) })
		both.Go(func() { p.carry(l, l.server, l.client, p.answer) })
		both.Wait()
	}
	l.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// carry forwards what pass allows, until either side ends.
func (p *Proxy) carry(l *link, from, to net.Conn, pass func(l *link, data []byte) bool) {
	defer l.close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if p.isStranded(l) {
			continue
		}
		if !pass(l, buffer[:n]) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) isStranded(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.stranded
}

// commit is a COMMIT as a simple query of the protocol.
var commit = []byte("Q\x00\x00\x00\x0bcommit\x00")

func (p *Proxy) request(l *link, data []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose > 0 && bytes.HasSuffix(data, commit) {
		p.lose--
		l.loses = true
	}
	return true
}

func (p *Proxy) answer(l *link, _ []byte) bool {
	p.mu.Lock()
	loses, latency := l.loses, p.latency
	p.mu.Unlock()
	time.Sleep(latency)
	return !loses
}
