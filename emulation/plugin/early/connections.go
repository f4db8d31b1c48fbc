package early

import (
	"context"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// Conns are the open QUIC connections of any number of listeners.
type Conns struct {
	// HandshakeOver, where it is set, is called once for each connection when its handshake has ended or failed.
	HandshakeOver func(*Conn)

	mu   sync.Mutex
	open map[*Conn]struct{}
}

// Conn is one QUIC connection, tracked from before the end of its handshake.
type Conn struct {
	*quic.Conn
	// Listener is the name of the listener it came by.
	Listener string

	conns     *Conns
	listener  *Listener
	announced sync.Once
}

// track registers a connection until it closes.
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

// handshakePatience is how long a connection may go on to complete its handshake before it is closed.
const handshakePatience = 3 * time.Second

// Close closes the open connections of one listener, or of all for "", and returns how many there were: each at once, or
// as soon as its handshake is complete.
func (cs *Conns) Close(listener string) int {
	cs.mu.Lock()
	var closing []*Conn
	for c := range cs.open {
		if listener == "" || c.Listener == listener {
			closing = append(closing, c)
		}
	}
	cs.mu.Unlock()
	patience, cancel := context.WithTimeout(context.Background(), handshakePatience)
	defer cancel()
	var wg sync.WaitGroup
	for _, c := range closing {
		wg.Go(func() { c.CloseAfterHandshake(patience, c.listener.protocol.NoError, "") })
	}
	wg.Wait()
	return len(closing)
}

// CloseAfterHandshake closes the connection with a code of the application, at once or as soon as the handshake is complete.
// Earlier QUIC would send the transport error APPLICATION_ERROR in place of the code (RFC 9000, section 10.2.3): the client
// would not learn the reason, and Firefox uses TCP for such a host from then on. The connection is closed in any case when
// the context ends, or after handshakePatience.
func (c *Conn) CloseAfterHandshake(ctx context.Context, code quic.ApplicationErrorCode, reason string) {
	closeAfterHandshake(ctx, c.Conn, code, reason)
}

func closeAfterHandshake(ctx context.Context, conn *quic.Conn, code quic.ApplicationErrorCode, reason string) {
	ctx, cancel := context.WithTimeout(ctx, handshakePatience)
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

// IsComplete is false as long as all the client sent is early data.
func (c *Conn) IsComplete() bool {
	select {
	case <-c.HandshakeComplete():
		return true
	default:
		return false
	}
}

// AwaitHandshake blocks until the handshake is over and returns an error where it failed.
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

// Announce makes HandshakeOver run now, unless it has. Who tells of something that happened after the handshake calls it
// first, so that what is told is in order.
func (c *Conn) Announce() {
	if c.conns.HandshakeOver != nil {
		c.announced.Do(func() { c.conns.HandshakeOver(c) })
	}
}
