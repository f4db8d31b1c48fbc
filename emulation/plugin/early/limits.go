package early

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// Limit bounds how much of something is held at once: by all clients, and by those of one address (of IPv6, one /64),
// so that nobody can take it all.
type Limit struct {
	all, each int

	mu      sync.Mutex
	held    int
	by      map[netip.Prefix]int
	waiting []*waiter // in the order they came
}

type waiter struct {
	from    netip.Prefix
	granted chan struct{}
}

// NewLimit allows for so many, and a share of them, in percent but at least one, to each address.
func NewLimit(all, share int) *Limit {
	return &Limit{all: all, each: max(1, all*share/100), by: map[netip.Prefix]int{}}
}

// Try takes one, if there is one, and returns what gives it back; nil where there is none.
func (l *Limit) Try(client net.Addr) (release func()) {
	from := network(client)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.grant(from) {
		return nil
	}
	return sync.OnceFunc(func() { l.release(from) })
}

// Acquire waits until there is one; nil where the context ends before.
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
	return release // granted at the same moment
}

// HalfTaken says that at least half is taken.
func (l *Limit) HalfTaken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held*2 >= l.all
}

// grant takes one; the mutex is held.
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

// network is what one client is taken to have: an IPv4 address, or the /64 of an IPv6 address.
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

// LimitConns bounds the connections of a listener over TCP: what is too much is closed at once.
func LimitConns(listener net.Listener, limit *Limit) net.Listener { return limited{listener, limit} }

type limited struct {
	net.Listener
	limit *Limit
}

func (l limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if release := l.limit.Try(conn.RemoteAddr()); release != nil {
			return &held{conn, release}, nil
		}
		_ = conn.Close()
	}
}

type held struct {
	net.Conn
	release func()
}

func (c *held) Close() error {
	c.release()
	return c.Conn.Close()
}
