package coalesce

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// Names of the listeners, in events and on the control socket.
const (
	listenerH3    = "h3"
	listenerDoQ   = "doq"
	listenerHTTPS = "https"
	listenerDoT   = "dot"
)

// connections are the open QUIC connections.
type connections struct {
	events *eventLog

	mu   sync.Mutex
	open map[*connection]struct{}
}

// connection is one QUIC connection, tracked from before the end of its handshake.
type connection struct {
	*quic.Conn
	listener string
	events   *eventLog
	reported sync.Once
}

func newConnections(events *eventLog) *connections {
	return &connections{events: events, open: map[*connection]struct{}{}}
}

// track registers a connection until it closes, and reports it when its handshake is over.
func (cs *connections) track(listener string, conn *quic.Conn) *connection {
	c := &connection{Conn: conn, listener: listener, events: cs.events}
	cs.mu.Lock()
	cs.open[c] = struct{}{}
	cs.mu.Unlock()
	go func() {
		_ = c.awaitHandshake(context.Background())
		c.report()
		<-conn.Context().Done()
		cs.mu.Lock()
		delete(cs.open, c)
		cs.mu.Unlock()
	}()
	return c
}

// close closes the open connections of one listener, or of all for "", at once; it returns how many there were.
func (cs *connections) close(listener string) int {
	cs.mu.Lock()
	var closing []*connection
	for c := range cs.open {
		if listener == "" || c.listener == listener {
			closing = append(closing, c)
		}
	}
	cs.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range closing {
		wg.Go(func() { _ = c.CloseWithError(noError[c.listener], "") })
	}
	wg.Wait()
	return len(closing)
}

// count returns the number of open connections per listener.
func (cs *connections) count() map[string]int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	counts := map[string]int{listenerH3: 0, listenerDoQ: 0}
	for c := range cs.open {
		counts[c.listener]++
	}
	return counts
}

// handshakeComplete is false as long as all the client sent is early data.
func (c *connection) handshakeComplete() bool {
	select {
	case <-c.HandshakeComplete():
		return true
	default:
		return false
	}
}

// awaitHandshake blocks until the handshake is over and returns an error where it failed.
func (c *connection) awaitHandshake(ctx context.Context) error {
	select {
	case <-c.HandshakeComplete():
		return nil
	case <-c.Context().Done():
		return context.Cause(c.Context())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// report writes the connection's event, once, after the handshake. Those who report something later that happened on
// the connection call it first, so that the file is in order.
func (c *connection) report() {
	c.reported.Do(func() {
		state := c.ConnectionState()
		event := newConnectionEvent(c.listener, c.RemoteAddr(), c.LocalAddr(), state.TLS)
		event.EarlyData = state.Used0RTT
		event.QUICVersion = state.Version.String()
		if !c.handshakeComplete() {
			event.Error = context.Cause(c.Context()).Error()
		}
		c.events.write(event)
	})
}

func newConnectionEvent(listener string, remote, local net.Addr, state tls.ConnectionState) connectionEvent {
	return connectionEvent{
		Event: "connection", Time: time.Now().UnixNano(), Listener: listener,
		Remote: remote.String(), Local: local.String(),
		ALPN: state.NegotiatedProtocol, ServerName: state.ServerName, Resumed: state.DidResume,
		TLSVersion: strings.Replace(tls.VersionName(state.Version), " ", "v", 1),
	}
}

// reportTLSConnections makes config report every TLS connection on TCP when the server's part of the handshake is done.
func reportTLSConnections(config *tls.Config, listener string, events *eventLog) {
	base := config.Clone()
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		reporting := base.Clone()
		remote, local := hello.Conn.RemoteAddr(), hello.Conn.LocalAddr()
		reporting.VerifyConnection = func(state tls.ConnectionState) error {
			events.write(newConnectionEvent(listener, remote, local, state))
			return nil
		}
		return reporting, nil
	}
}
