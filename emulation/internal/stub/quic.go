package stub

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"
)

// Error codes of DNS over QUIC (RFC 9250, section 4.3).
const (
	doqNoError          = 0x0
	doqProtocolError    = 0x2
	doqRequestCancelled = 0x3
)

// datagramBytes is the UDP payload of padded Initial datagrams (RFC 9000, section 14.1).
const datagramBytes = 1200

// lingerTime is how long the socket of a closed connection stays open, to answer late packets with CONNECTION_CLOSE.
const lingerTime = time.Second

// quicDialer sets up DoQ and DoH3.
type quicDialer struct {
	address netip.AddrPort
	timeout time.Duration
	idle    time.Duration
	tls     *tls.Config
	early   bool
	pages   bool // pages are loaded over the connection too
}

// connect returns when the handshake is complete, or when early data can be sent if the ticket allows it. uniStreams is the
// number of unidirectional streams that the server may open.
func (d quicDialer) connect(ctx context.Context, cache *sessionCache, alpn string, uniStreams int64) (*quicConn, error) {
	// Each connection has its own socket, as in other clients.
	network := "udp4"
	if d.address.Addr().Is6() {
		network = "udp6"
	}
	socket, err := net.ListenUDP(network, nil)
	if err != nil {
		return nil, err
	}
	transport := &quic.Transport{Conn: socket}
	release := func() {
		_ = transport.Close()
		_ = socket.Close()
	}
	config := &quic.Config{
		Versions:                []quic.Version{quic.Version1},
		HandshakeIdleTimeout:    d.timeout,
		MaxIdleTimeout:          d.idle,
		InitialPacketSize:       datagramBytes,
		DisablePathMTUDiscovery: true, // its probes would be additional traffic on the link
		MaxIncomingStreams:      -1,
		MaxIncomingUniStreams:   uniStreams,
		Tracer:                  qlog.DefaultConnectionTracer, // writes qlogs if QLOGDIR is set
	}
	if d.pages {
		config.InitialStreamReceiveWindow, config.MaxStreamReceiveWindow = pageStreamWindow, pageStreamWindow
		config.InitialConnectionReceiveWindow, config.MaxConnectionReceiveWindow = pageConnectionWindow, pageConnectionWindow
	}
	secured := d.tls.Clone()
	secured.NextProtos = []string{alpn}
	if cache != nil {
		secured.ClientSessionCache = tickets{cache}
		config.TokenStore = tokens{cache}
	}
	dial := transport.Dial
	if d.early {
		dial = transport.DialEarly
	}
	established, err := dial(ctx, net.UDPAddrFromAddrPort(d.address), secured, config)
	if err != nil {
		release()
		return nil, err
	}
	c := &quicConn{Conn: established, port: portOf(socket.LocalAddr())}
	context.AfterFunc(established.Context(), func() { time.AfterFunc(lingerTime, release) })
	go c.closeWhenSilent(d.timeout / 2)
	return c, nil
}

// quicConn is the common part of connections of DoQ and DoH3.
type quicConn struct {
	*quic.Conn
	watchdog
	port    uint16
	waiting atomic.Int32
	fresh   atomic.Bool // since the last check, a query began to wait when no other waited
	silent  atomic.Bool
}

// closeWhenSilent closes the connection if a query waits, no packet arrives for the limit, and packets are retransmitted. The
// server may have lost the connection in a restart, which QUIC would notice only by its idle timeout. If the server has
// acknowledged the query, nothing is retransmitted and the connection stays open. The limit is a number of checks, not a
// time: while this process is suspended, no packets arrive either.
func (c *quicConn) closeWhenSilent(limit time.Duration) {
	const checks = 8
	ticker := time.NewTicker(max(limit/checks, time.Millisecond))
	defer ticker.Stop()
	var received, sent uint64
	quiet := 0
	for {
		select {
		case <-c.Context().Done():
			return
		case <-ticker.C:
			quiet++
			stats := c.ConnectionStats()
			switch {
			case c.fresh.Swap(false) || stats.PacketsReceived != received || c.waiting.Load() == 0:
				received, sent, quiet = stats.PacketsReceived, stats.PacketsSent, 0
			case quiet >= checks && stats.PacketsSent >= sent+2: // one may be an acknowledgement
				c.silent.Store(true)
				_ = c.CloseWithError(doqNoError, "")
				return
			}
		}
	}
}

func (c *quicConn) usable() bool { return c.Context().Err() == nil && !c.stuck.Load() }

func (c *quicConn) early() bool {
	select {
	case <-c.HandshakeComplete():
		return false
	default:
		return true
	}
}

func (c *quicConn) state() connState {
	if c.early() {
		return connState{}
	}
	state := c.ConnectionState()
	return connState{resumed: &state.TLS.DidResume, earlyDataAccepted: &state.Used0RTT}
}

func (c *quicConn) localPort() uint16 { return c.port }

// askWithRetry runs once for a query, and a second time if the server refused early data. It classifies the error, see
// classifyError.
func (c *quicConn) askWithRetry(ctx context.Context, once func() ([]byte, error)) ([]byte, error) {
	if c.waiting.Add(1) == 1 {
		c.fresh.Store(true)
	}
	defer c.waiting.Add(-1)
	wire, err := c.call(ctx, func() ([]byte, error) {
		wire, err := once()
		if errors.Is(err, quic.Err0RTTRejected) {
			if _, err = c.NextConnection(ctx); err == nil {
				wire, err = once()
			}
		}
		return wire, err
	})
	if _, ok := errors.AsType[*quic.StreamError](err); ok && ctx.Err() == nil {
		return nil, err
	}
	if err = classifyError(ctx, err); err != nil && c.silent.Load() {
		err = &broken{errSilent}
	}
	return wire, err
}

// awaitEarlyData waits until the server has accepted or refused early data. Callers must not touch streams of refused early
// data: quic-go would apply the call to the new streams with the same IDs.
func (c *quicConn) awaitEarlyData(ctx context.Context, early bool) error {
	if !early {
		return nil
	}
	select {
	case <-c.HandshakeComplete():
	case <-c.Context().Done():
		return context.Cause(c.Context())
	case <-ctx.Done():
		return ctx.Err()
	}
	if !c.ConnectionState().Used0RTT {
		return quic.Err0RTTRejected
	}
	return nil
}

// doqConn is a connection of DNS over dedicated QUIC connections (RFC 9250).
type doqConn struct{ *quicConn }

func (d quicDialer) dialDoQ(ctx context.Context, cache *sessionCache) (conn, error) {
	c, err := d.connect(ctx, cache, "doq", -1) // DoQ has none (RFC 9250, section 4.2)
	if err != nil {
		return nil, err
	}
	return doqConn{c}, nil
}

func (c doqConn) ask(ctx context.Context, query []byte) ([]byte, error) {
	return c.askWithRetry(ctx, func() ([]byte, error) { return c.exchange(ctx, query) })
}

// exchange sends a query on a new stream and reads the answer.
func (c doqConn) exchange(ctx context.Context, query []byte) ([]byte, error) {
	early := c.early()
	stream, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = stream.SetDeadline(deadline)
	// One write, followed by the end of the stream at once, so that both leave in the same packet.
	_, err = stream.Write(framed(query))
	if err == nil {
		err = stream.Close()
	}
	if err == nil {
		err = c.awaitEarlyData(ctx, early)
	}
	var wire []byte
	ended := false
	if err == nil {
		wire, ended, err = readAnswer(stream)
	}
	if err == nil {
		err = checkDoQ(wire)
	}
	_, violation := err.(badAnswer)
	switch {
	case err == nil:
		if !ended {
			_ = stream.SetReadDeadline(time.Now().Add(endTimeout))
			go c.awaitEnd(stream)
		}
	case violation:
		_ = c.CloseWithError(doqProtocolError, err.Error()) // RFC 9250, section 4.3.3
	case !errors.Is(err, quic.Err0RTTRejected):
		stream.CancelRead(doqRequestCancelled)
		stream.CancelWrite(doqRequestCancelled)
	}
	return wire, err
}

// endTimeout is how long the end of a stream may follow its answer.
const endTimeout = 3 * time.Second

// awaitEnd reads the end of a stream that did not arrive with the answer, so that both endpoints release the stream. If it
// does not arrive in time, awaitEnd closes the connection (RFC 9250, section 4.3.3).
func (c doqConn) awaitEnd(stream *quic.Stream) {
	n, err := stream.Read(make([]byte, 1))
	switch {
	case n > 0:
		_ = c.CloseWithError(doqProtocolError, errOversized.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		_ = c.CloseWithError(doqProtocolError, "no end of the stream after the answer")
	case err != io.EOF:
		stream.CancelRead(doqRequestCancelled)
	}
}

// checkDoQ returns an error for a message that is not allowed in DoQ (RFC 9250, sections 4.2.1 and 5.5.2).
func checkDoQ(wire []byte) error {
	if binary.BigEndian.Uint16(wire) != 0 {
		return errWrongID
	}
	if !bytes.Contains(wire, []byte{0, dns.EDNS0TCPKEEPALIVE}) {
		return nil // avoids parsing most answers twice
	}
	m, err := parse(wire)
	if err != nil {
		return nil // checkAnswer reports it as malformed; the connection stays open
	}
	if opt := m.IsEdns0(); opt != nil {
		for _, option := range opt.Option {
			if option.Option() == dns.EDNS0TCPKEEPALIVE {
				return errKeepalive
			}
		}
	}
	return nil
}

// readAnswer reads the answer of a stream. ended is true if the end of the stream was read too.
func readAnswer(stream io.Reader) (wire []byte, ended bool, err error) {
	buffer := make([]byte, 0, 1024)
	for {
		n, err := stream.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		want := maxMessageBytes
		if len(buffer) >= 2 {
			want = 2 + int(binary.BigEndian.Uint16(buffer))
		}
		switch {
		case len(buffer) > want:
			return nil, false, errOversized
		case len(buffer) == want && want < 2+headerBytes, err == io.EOF && len(buffer) < want:
			return nil, false, errMalformed
		case len(buffer) == want:
			return buffer[2:], err == io.EOF, nil
		case err != nil:
			return nil, false, err
		}
		if len(buffer) == cap(buffer) {
			buffer = slices.Grow(buffer, want-len(buffer)+1) // one byte more, to detect excess data
		}
	}
}

func (c doqConn) close() { _ = c.CloseWithError(doqNoError, "") }

// h3UniStreams allows the control stream, two streams of QPACK, and some of reserved types (RFC 9114, section 6.2).
const h3UniStreams = 8

// h3Conn is a connection of DNS over HTTP/3.
type h3Conn struct {
	*quicConn
	url string

	mu       sync.Mutex
	requests *http3.ClientConn
}

// h3Transport creates HTTP/3 clients on existing QUIC connections. It opens no connections itself.
var h3Transport = http3.Transport{DisableCompression: true, MaxResponseHeaderBytes: maxHeaderBytes}

func (d quicDialer) dialH3(url string) dialer {
	return func(ctx context.Context, cache *sessionCache) (conn, error) {
		c, err := d.connect(ctx, cache, http3.NextProtoH3, h3UniStreams)
		if err != nil {
			return nil, err
		}
		return &h3Conn{quicConn: c, url: url, requests: h3Transport.NewClientConn(c.Conn)}, nil
	}
}

func (c *h3Conn) ask(ctx context.Context, query []byte) ([]byte, error) {
	request, err := newRequest(ctx, c.url, query)
	if err != nil {
		return nil, err
	}
	var used *http3.ClientConn
	return c.askWithRetry(ctx, func() ([]byte, error) {
		used = c.client(used)
		return c.exchange(ctx, used, request)
	})
}

func (c *h3Conn) exchange(ctx context.Context, requests *http3.ClientConn, request *http.Request) ([]byte, error) {
	early := c.early()
	stream, err := requests.OpenRequestStream(ctx)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = stream.SetDeadline(deadline)
	err = stream.SendRequestHeader(request)
	if err == nil {
		// The error is ignored: a server may respond and stop reading before the end of the request (RFC 9114, section 4.1).
		_ = stream.Close()
		err = c.awaitEarlyData(ctx, early)
	}
	if errors.Is(err, quic.Err0RTTRejected) {
		return nil, err
	}
	var wire []byte
	if err == nil {
		var response *http.Response
		if response, err = stream.ReadResponse(); err == nil {
			wire, err = readResponse(response)
		}
	}
	if err != nil {
		stream.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
		stream.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestCanceled))
	}
	return wire, err
}

// client returns the HTTP/3 client of the connection. It replaces the client refused, whose early data the server refused
// together with its control stream.
func (c *h3Conn) client(refused *http3.ClientConn) *http3.ClientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests == refused {
		c.requests = h3Transport.NewClientConn(c.Conn)
	}
	return c.requests
}

func (c *h3Conn) close() {
	_ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
}
