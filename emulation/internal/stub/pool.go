package stub

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/miekg/dns"
)

// connections is how queries share connections to the upstream.
type connections string

const (
	oneConnection connections = "one"   // all of them one
	pooled        connections = "pool"  // each an idle one, or another
	perQuery      connections = "query" // each its own, closed after the answer
)

// pool asks each query on a connection that no other uses, as dnsproxy did over DoT until 2022; with perQuery on a new one,
// as it did over TCP. All of them resume what the newest ticket allows.
type pool struct {
	another func(kept *sessionCache, opened *atomic.Uint64) *session
	single  bool

	mu     sync.Mutex
	kept   *sessionCache
	opened atomic.Uint64
	idle   []*session
	all    map[*session]struct{}
}

func newPool(s settings, dial dialer) *pool {
	p := &pool{single: s.connections == perQuery, all: map[*session]struct{}{}}
	p.another = func(kept *sessionCache, opened *atomic.Uint64) *session {
		return &session{dial: dial, timeout: s.timeout, probeIdleAfter: s.probeIdleAfter, kept: kept, opened: opened}
	}
	if s.resumption != resumeNothing {
		p.kept = newSessionCache()
	}
	return p
}

func (p *pool) exchange(ctx context.Context, query []byte, question dns.Question) (*dns.Msg, cost, error) {
	s := p.take()
	answer, spent, err := s.exchange(ctx, query, question)
	p.give(s)
	return answer, spent, err
}

// take returns the session whose connection was last used, or another.
func (p *pool) take() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		s := p.idle[last]
		p.idle = p.idle[:last]
		return s
	}
	s := p.another(p.kept, &p.opened)
	p.all[s] = struct{}{}
	return s
}

// give takes a session back; of one that a reset has let go, and of a single one, the connection is closed.
func (p *pool) give(s *session) {
	p.mu.Lock()
	_, mine := p.all[s]
	keep := mine && !p.single
	if keep {
		p.idle = append(p.idle, s)
	} else {
		delete(p.all, s)
	}
	p.mu.Unlock()
	if !keep {
		s.close()
	}
}

func (p *pool) reset(forget bool) (closed int) {
	p.mu.Lock()
	sessions := p.all
	p.all, p.idle = map[*session]struct{}{}, nil
	if forget && p.kept != nil {
		p.kept = newSessionCache()
	}
	p.mu.Unlock()
	var waiting sync.WaitGroup
	var total atomic.Int64
	for s := range sessions {
		waiting.Go(func() { total.Add(int64(s.reset(forget))) })
	}
	waiting.Wait()
	return int(total.Load())
}

func (p *pool) stats() stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := stats{Connections: p.opened.Load(), Ticket: p.kept != nil && p.kept.hasTicket()}
	for s := range p.all {
		c.Open += s.stats().Open
	}
	return c
}

func (p *pool) close() {
	p.mu.Lock()
	sessions := p.all
	p.all, p.idle = map[*session]struct{}{}, nil
	p.mu.Unlock()
	for s := range sessions {
		s.close()
	}
}

// over makes the way to the upstream whose connections this sets up.
func (s settings) over(dial dialer) exchanger {
	if s.connections == oneConnection {
		return newSession(dial, s)
	}
	return newPool(s, dial)
}
