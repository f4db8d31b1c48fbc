package early

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// Limit is a counting semaphore with two limits: one for all clients together, and one for each client address (each /64 of
// IPv6), so that one client cannot take everything.
type Limit struct {
	all, each int

	mu      sync.Mutex
	held    int
	by      map[netip.Prefix]int
	waiting []*waiter // in order of arrival
}

type waiter struct {
	from    netip.Prefix
	granted chan struct{}
}

// NewLimit returns a limit of all units. Each address may hold share percent of them, and at least one.
func NewLimit(all, share int) *Limit {
	return &Limit{all: all, each: max(1, all*share/100), by: map[netip.Prefix]int{}}
}

// Try acquires a unit and returns the function that releases it; nil if none is free.
func (l *Limit) Try(client net.Addr) (release func()) {
	from := network(client)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.grant(from) {
		return nil
	}
	return sync.OnceFunc(func() { l.release(from) })
}

// Acquire waits for a free unit and returns the function that releases it; nil if the context ends first.
func (l *Limit) Acquire(ctx context.Context, client net.Addr) (release func()) {
	from := network(client)
	release = sync.OnceFunc(func() { l.release(from) })
	l.mu.Lock()
	if l.grant(from) {
		l.mu.Unlock()
		return release
	}
	w := &waiter{from, make(chan struct{})}
	l.waiting = append(l.waiting, w)
	l.mu.Unlock()
	select {
	case <-w.granted:
		return release
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.waiting {
		if other == w {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return nil
		}
	}
	return release // granted when the context ended
}

// HalfTaken reports whether at least half of all units are held.
func (l *Limit) HalfTaken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held*2 >= l.all
}

// grant takes a unit if one is free. The caller holds the mutex.
func (l *Limit) grant(from netip.Prefix) bool {
	if l.held >= l.all || l.by[from] >= l.each {
		return false
	}
	l.held++
	l.by[from]++
	return true
}

func (l *Limit) release(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held--
	if l.by[from]--; l.by[from] == 0 {
		delete(l.by, from)
	}
	for i, w := range l.waiting {
		if l.grant(w.from) {
			close(w.granted)
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return
		}
	}
}

// network returns the prefix that counts as one client: an IPv4 address, or the /64 of an IPv6 address.
func network(client net.Addr) netip.Prefix {
	address, err := netip.ParseAddrPort(client.String())
	if err != nil {
		return netip.Prefix{}
	}
	bits := 32
	if address.Addr().Unmap().Is6() {
		bits = 64
	}
	prefix, _ := address.Addr().Unmap().WithZone("").Prefix(bits)
	return prefix
}

// LimitConns returns a TCP listener with limited connections. It closes excess connections at once.
func LimitConns(listener net.Listener, limit *Limit) net.Listener {
	return limitedListener{listener, limit}
}

type limitedListener struct {
	net.Listener
	limit *Limit
}

func (l limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if release := l.limit.Try(conn.RemoteAddr()); release != nil {
			return &limitedConn{conn, release}, nil
		}
		_ = conn.Close()
	}
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	c.release()
	return c.Conn.Close()
}
