package early

import (
	"context"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// Conns is the set of open QUIC connections of one or more listeners.
type Conns struct {
	// HandshakeOver is called once for each connection when its handshake has completed or failed; nil for no call.
	HandshakeOver func(*Conn)

	mu   sync.Mutex
	open map[*Conn]struct{}
}

// Conn is a QUIC connection whose handshake may not be complete.
type Conn struct {
	*quic.Conn
	// Listener is the name of the listener that accepted it.
	Listener string

	conns     *Conns
	listener  *Listener
	announced sync.Once
}

// track adds a connection to the set until it closes.
func (cs *Conns) track(listener *Listener, conn *quic.Conn) *Conn {
	c := &Conn{Conn: conn, Listener: listener.protocol.Name, conns: cs, listener: listener}
	cs.mu.Lock()
	if cs.open == nil {
		cs.open = map[*Conn]struct{}{}
	}
	cs.open[c] = struct{}{}
	cs.mu.Unlock()
	go func() {
		_ = c.AwaitHandshake(context.Background())
		c.Announce()
		<-conn.Context().Done()
		cs.mu.Lock()
		delete(cs.open, c)
		cs.mu.Unlock()
	}()
	return c
}

// handshakeTimeout is how long closing a connection waits for the end of its handshake.
const handshakeTimeout = 3 * time.Second

// Close closes the open connections of one listener, or of all with "", as CloseAfterHandshake does. It returns their
// number.
func (cs *Conns) Close(listener string) int {
	cs.mu.Lock()
	var closing []*Conn
	for c := range cs.open {
		if listener == "" || c.Listener == listener {
			closing = append(closing, c)
		}
	}
	cs.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, c := range closing {
		wg.Go(func() { c.CloseAfterHandshake(ctx, c.listener.protocol.NoError, "") })
	}
	wg.Wait()
	return len(closing)
}

// CloseAfterHandshake closes the connection with an application error code once the handshake is complete. During the
// handshake QUIC would send the transport error APPLICATION_ERROR instead of the code (RFC 9000, section 10.2.3). The client
// would not learn the reason, and Firefox would then use only TCP for the host. When the context ends or handshakeTimeout
// has passed, the connection is closed even if its handshake is not complete.
func (c *Conn) CloseAfterHandshake(ctx context.Context, code quic.ApplicationErrorCode, reason string) {
	closeAfterHandshake(ctx, c.Conn, code, reason)
}

func closeAfterHandshake(ctx context.Context, conn *quic.Conn, code quic.ApplicationErrorCode, reason string) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	select {
	case <-conn.HandshakeComplete():
	case <-conn.Context().Done():
	case <-ctx.Done():
	}
	_ = conn.CloseWithError(code, reason)
}

// Count returns the number of open connections of a listener.
func (cs *Conns) Count(listener string) (n int) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for c := range cs.open {
		if c.Listener == listener {
			n++
		}
	}
	return n
}

// IsComplete reports whether the handshake is complete.
func (c *Conn) IsComplete() bool {
	select {
	case <-c.HandshakeComplete():
		return true
	default:
		return false
	}
}

// AwaitHandshake waits for the end of the handshake and returns an error if it failed.
func (c *Conn) AwaitHandshake(ctx context.Context) error {
	select {
	case <-c.HandshakeComplete():
		return nil
	case <-c.Context().Done():
		return context.Cause(c.Context())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Announce calls HandshakeOver unless it has been called. Callers use it before they report an event after the handshake, so
// that the events are in order.
func (c *Conn) Announce() {
	if c.conns.HandshakeOver != nil {
		c.announced.Do(func() { c.conns.HandshakeOver(c) })
	}
}
