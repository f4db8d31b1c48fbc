package stub

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// streamDialer sets up DoTCP and, with a TLS configuration, DoT.
type streamDialer struct {
	address netip.AddrPort
	timeout time.Duration
	idle    time.Duration
	tls     *tls.Config
}

func (d streamDialer) dial(ctx context.Context, cache *sessionCache) (conn, error) {
	socket, state, err := d.connect(ctx, cache, nil)
	if err != nil {
		return nil, err
	}
	c := &streamConn{Conn: socket, tlsState: state, idle: d.idle, writing: make(chan struct{}, 1), pending: map[uint16]chan<- result{}}
	c.mu.Lock()
	c.idleTimer = time.AfterFunc(d.idle, c.closeIdle)
	c.mu.Unlock()
	go c.read()
	return c, nil
}

// connect sets up a TCP connection and, with a TLS configuration, a TLS session.
func (d streamDialer) connect(ctx context.Context, cache *sessionCache, alpn []string) (net.Conn, connState, error) {
	dialer := net.Dialer{
		KeepAlive: -1, // no packets on an idle connection
		Control: func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(descriptor uintptr) {
				// If data is unacknowledged for half the timeout, the connection ends. The query has the other half for a new one.
				limit := int(d.timeout.Milliseconds() / 2)
				failed = unix.SetsockoptInt(int(descriptor), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, limit) // #nosec G115
			})
			return errors.Join(err, failed)
		},
	}
	socket, err := dialer.DialContext(ctx, "tcp", d.address.String())
	if err != nil || d.tls == nil {
		return socket, connState{}, err
	}
	config := d.tls.Clone()
	config.NextProtos = alpn
	if cache != nil {
		config.ClientSessionCache = tickets{cache}
	}
	secured := tls.Client(socket, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = socket.Close()
		return nil, connState{}, err
	}
	state := secured.ConnectionState()
	if len(alpn) > 0 && state.NegotiatedProtocol != alpn[0] {
		_ = secured.Close()
		return nil, connState{}, errors.New("the server does not speak " + alpn[0])
	}
	return secured, connState{resumed: &state.DidResume}, nil
}

// result is an answer or an error.
type result struct {
	wire []byte
	err  error
}

// streamConn is a TCP or TLS connection for concurrent queries (RFC 7766, section 6.2.1.1).
type streamConn struct {
	net.Conn
	tlsState  connState
	idle      time.Duration
	idleTimer *time.Timer
	writing   chan struct{} // a semaphore: one query is written at a time

	mu      sync.Mutex
	pending map[uint16]chan<- result // by ID; nil if the query has ended and its answer may still arrive
	waiting int
	failed  error // why the connection cannot be used; nil while it can
}

func (c *streamConn) ask(ctx context.Context, query []byte) ([]byte, error) {
	answer := make(chan result, 1)
	id, err := c.register(answer)
	if err != nil {
		return nil, err
	}
	defer c.unregister(id, answer)
	wire := framed(query)
	binary.BigEndian.PutUint16(wire[2:], id)
	if err := c.send(ctx, wire); err != nil {
		return nil, err
	}
	select {
	case r := <-answer:
		return r.wire, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// send writes a query. It returns at the end of the context even if the upstream does not read.
func (c *streamConn) send(ctx context.Context, wire []byte) error {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	deadline, _ := ctx.Deadline()
	_ = c.SetWriteDeadline(deadline)
	_, err := c.Write(wire)
	if err == nil {
		return nil
	}
	c.fail(&broken{err}) // the message may be incomplete
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &broken{err}
}

// register assigns a random free ID to a query.
func (c *streamConn) register(answer chan<- result) (uint16, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return 0, c.failed
	}
	if len(c.pending) >= 1<<15 {
		return 0, errBusy // limits the tries of the loop below
	}
	for {
		id := uint16(rand.Uint32()) // #nosec G115 G404 -- all bits are random
		if _, taken := c.pending[id]; !taken {
			c.pending[id] = answer
			c.waiting++
			c.idleTimer.Stop()
			return id, nil
		}
	}
}

// unregister ends a query. Its ID stays reserved if the answer may still arrive. If the answer has arrived, the ID may belong
// to another query already.
func (c *streamConn) unregister(id uint16, answer chan<- result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[id] == answer {
		c.pending[id] = nil
	}
	c.waiting--
	if c.waiting == 0 && c.failed == nil {
		c.idleTimer.Reset(c.idle)
	}
}

func (c *streamConn) closeIdle() {
	c.mu.Lock()
	idle := c.waiting == 0
	c.mu.Unlock()
	if idle {
		c.fail(&broken{errors.New("idle")})
	}
}

// read passes answers to the waiting queries until the connection ends.
func (c *streamConn) read() {
	stream := bufio.NewReader(c.Conn)
	for {
		wire, err := readMessage(stream)
		if err != nil {
			c.fail(&broken{err})
			return
		}
		if len(wire) < headerBytes {
			c.fail(errMalformed)
			return
		}
		id := binary.BigEndian.Uint16(wire)
		c.mu.Lock()
		answer, known := c.pending[id]
		delete(c.pending, id)
		c.mu.Unlock()
		if !known {
			c.fail(errWrongID)
			return
		}
		if answer != nil {
			binary.BigEndian.PutUint16(wire, 0)
			answer <- result{wire: wire}
		}
	}
}

// fail closes the connection. All waiting queries return the first reason.
func (c *streamConn) fail(reason error) {
	c.mu.Lock()
	if c.failed == nil {
		c.failed = reason
		for _, answer := range c.pending {
			if answer != nil {
				answer <- result{err: reason}
			}
		}
		clear(c.pending)
		c.idleTimer.Stop()
	}
	c.mu.Unlock()
	_ = c.Close()
}

// maxUnanswered is the number of IDs that unanswered queries may reserve before the connection is replaced.
const maxUnanswered = 1 << 14

func (c *streamConn) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed == nil && len(c.pending)-c.waiting < maxUnanswered
}

func (c *streamConn) early() bool       { return false }
func (c *streamConn) state() connState  { return c.tlsState }
func (c *streamConn) path() pathState   { return tcpPath(c.Conn) }
func (c *streamConn) localPort() uint16 { return portOf(c.LocalAddr()) }
func (c *streamConn) close()            { c.fail(&broken{net.ErrClosed}) }

// readMessage reads a message with its two-byte length.
func readMessage(stream io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(stream, length[:]); err != nil {
		return nil, err
	}
	wire := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(stream, wire)
	return wire, err
}
