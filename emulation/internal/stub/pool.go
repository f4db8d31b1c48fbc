package stub

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/miekg/dns"
)

// connections determines how queries share connections to the upstream.
type connections string

const (
	oneConnection connections = "one"   // all queries share one
	pooled        connections = "pool"  // each query uses an idle one, or a new one
	perQuery      connections = "query" // each query uses a new one, closed after the answer
)

// pool sends each query over a connection that no other query uses at that time, as dnsproxy did over DoT in 2022. With
// single, each connection carries one query, as dnsproxy did over TCP. All connections share one session cache.
type pool struct {
	makeSession func(cache *sessionCache, opened *atomic.Uint64) *session
	single      bool

	mu     sync.Mutex
	cache  *sessionCache
	opened atomic.Uint64
	idle   []*session
	all    map[*session]struct{}
}

func newPool(s settings, dial dialer) *pool {
	p := &pool{single: s.connections == perQuery, all: map[*session]struct{}{}}
	p.makeSession = func(cache *sessionCache, opened *atomic.Uint64) *session {
		return &session{dial: dial, timeout: s.timeout, probeIdleAfter: s.probeIdleAfter, cache: cache, opened: opened}
	}
	if s.resumption != resumeNothing {
		p.cache = newSessionCache()
	}
	return p
}

func (p *pool) exchange(ctx context.Context, query []byte, question dns.Question) (*dns.Msg, cost, error) {
	s := p.take()
	answer, spent, err := s.exchange(ctx, query, question)
	p.give(s)
	return answer, spent, err
}

// take returns the idle session that was used last, or a new one.
func (p *pool) take() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		s := p.idle[last]
		p.idle = p.idle[:last]
		return s
	}
	s := p.makeSession(p.cache, &p.opened)
	p.all[s] = struct{}{}
	return s
}

// give returns a session to the pool. It closes the session if a reset has removed it from the pool, or with single.
func (p *pool) give(s *session) {
	p.mu.Lock()
	_, known := p.all[s]
	keep := known && !p.single
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
	if forget && p.cache != nil {
		p.cache = newSessionCache()
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
	c := stats{Connections: p.opened.Load(), Ticket: p.cache != nil && p.cache.hasTicket()}
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

// exchangerFor returns an exchanger with connections of the dialer: a session or a pool.
func (s settings) exchangerFor(dial dialer) exchanger {
	if s.connections == oneConnection {
		return newSession(dial, s)
	}
	return newPool(s, dial)
}
