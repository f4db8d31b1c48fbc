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

// datagramBytes is the UDP payload Initial datagrams are padded to (RFC 9000, section 14.1).
const datagramBytes = 1200

// lingering is how long the socket of a closed connection answers what is still on its way with the close.
const lingering = time.Second

// quicDialer sets up DoQ and DoH3.
type quicDialer struct {
	address netip.AddrPort
	timeout time.Duration
	idle    time.Duration
	tls     *tls.Config
	early   bool
	pages   bool // pages are loaded over it
}

// connect returns once the handshake is complete or, with a ticket that allows it, early data can be sent. The server may
// open so many unidirectional streams.
func (d quicDialer) connect(ctx context.Context, kept *sessionCache, alpn string, uniStreams int64) (*quicConn, error) {
	// A socket of its own, as every other client has.
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
		DisablePathMTUDiscovery: true, // its probes would share the link with what is measured
		MaxIncomingStreams:      -1,
		MaxIncomingUniStreams:   uniStreams,
		Tracer:                  qlog.DefaultConnectionTracer, // where QLOGDIR is set
	}
	if d.pages {
		config.InitialStreamReceiveWindow, config.MaxStreamReceiveWindow = pageStreamWindow, pageStreamWindow
		config.InitialConnectionReceiveWindow, config.MaxConnectionReceiveWindow = pageConnectionWindow, pageConnectionWindow
	}
	secured := d.tls.Clone()
	secured.NextProtos = []string{alpn}
	if kept != nil {
		secured.ClientSessionCache = tickets{kept}
		config.TokenStore = tokens{kept}
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
	context.AfterFunc(established.Context(), func() { time.AfterFunc(lingering, release) })
	go c.guard(d.timeout / 2)
	return c, nil
}

// quicConn is what DoQ and DoH3 have in common.
type quicConn struct {
	*quic.Conn
	watchdog
	port    uint16
	waiting atomic.Int32
	fresh   atomic.Bool // a query is the first that waits, since the guard looked
	silent  atomic.Bool
}

// guard ends the connection where nothing at all arrives for that time while a query waits and is sent again: the server
// may have lost it, in a restart, and QUIC itself would notice only by its idle timeout. A server that acknowledged the
// query may take as long as it likes. Looks are counted, not time: while this process does not run, nothing arrives either.
func (c *quicConn) guard(patience time.Duration) {
	const looks = 8
	ticker := time.NewTicker(max(patience/looks, time.Millisecond))
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
			case quiet >= looks && stats.PacketsSent >= sent+2: // one may be our own acknowledgement
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

// asking runs one query: again where the server refused early data, and with a fault of the connection told as such.
func (c *quicConn) asking(ctx context.Context, once func() ([]byte, error)) ([]byte, error) {
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
	if err = verdict(ctx, err); err != nil && c.silent.Load() {
		err = &broken{errSilent}
	}
	return wire, err
}

// taken waits until the server has taken or refused what was sent as early data. The streams of refused early data are
// left alone, since whatever is done to them quic-go does to their successors of the same numbers.
func (c *quicConn) taken(ctx context.Context, early bool) error {
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

// doqConn is DNS over dedicated QUIC connections (RFC 9250).
type doqConn struct{ *quicConn }

func (d quicDialer) dialDoQ(ctx context.Context, kept *sessionCache) (conn, error) {
	c, err := d.connect(ctx, kept, "doq", -1) // it has none (RFC 9250, section 4.2)
	if err != nil {
		return nil, err
	}
	return doqConn{c}, nil
}

func (c doqConn) ask(ctx context.Context, query []byte) ([]byte, error) {
	return c.asking(ctx, func() ([]byte, error) { return c.exchange(ctx, query) })
}

// exchange has a stream of its own, as every query.
func (c doqConn) exchange(ctx context.Context, query []byte) ([]byte, error) {
	early := c.early()
	stream, err := c.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = stream.SetDeadline(deadline)
	// One write, and the end of the stream right after it, so that both leave in the same packet.
	_, err = stream.Write(framed(query))
	if err == nil {
		err = stream.Close()
	}
	if err == nil {
		err = c.taken(ctx, early)
	}
	var wire []byte
	ended := false
	if err == nil {
		wire, ended, err = readAnswer(stream)
	}
	if err == nil {
		err = checkDoQ(wire)
	}
	_, breach := err.(badAnswer)
	switch {
	case err == nil:
		if !ended {
			_ = stream.SetReadDeadline(time.Now().Add(endPatience))
			go c.awaitEnd(stream)
		}
	case breach:
		_ = c.CloseWithError(doqProtocolError, err.Error()) // RFC 9250, section 4.3.3
	case !errors.Is(err, quic.Err0RTTRejected):
		stream.CancelRead(doqRequestCancelled)
		stream.CancelWrite(doqRequestCancelled)
	}
	return wire, err
}

// endPatience is how long the end of a stream may come after its answer.
const endPatience = 3 * time.Second

// awaitEnd reads the end of a stream that did not come with its answer, so that the stream is over for both sides. Where
// it does not come, the connection is closed (RFC 9250, section 4.3.3).
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

// checkDoQ looks for what must not be in a message on DoQ (RFC 9250, sections 4.2.1 and 5.5.2).
func checkDoQ(wire []byte) error {
	if binary.BigEndian.Uint16(wire) != 0 {
		return errWrongID
	}
	if !bytes.Contains(wire, []byte{0, dns.EDNS0TCPKEEPALIVE}) {
		return nil // most answers, which need not be read twice
	}
	m, err := parse(wire)
	if err != nil {
		return nil // told as malformed, which costs no connection
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

// readAnswer reads the one message of a stream, and tells whether the stream has ended with it.
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
			buffer = slices.Grow(buffer, want-len(buffer)+1) // one more byte shows what is too much
		}
	}
}

func (c doqConn) close() { _ = c.CloseWithError(doqNoError, "") }

// h3UniStreams is for the control stream, those of QPACK, and a few that mean nothing (RFC 9114, section 6.2).
const h3UniStreams = 8

// h3Conn is DNS over HTTP/3.
type h3Conn struct {
	*quicConn
	url string

	mu       sync.Mutex
	requests *http3.ClientConn
}

// h3Transport only makes HTTP/3 of QUIC connections, it has none of its own.
var h3Transport = http3.Transport{DisableCompression: true, MaxResponseHeaderBytes: maxHeaderBytes}

func (d quicDialer) dialH3(url string) dialer {
	return func(ctx context.Context, kept *sessionCache) (conn, error) {
		c, err := d.connect(ctx, kept, http3.NextProtoH3, h3UniStreams)
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
	return c.asking(ctx, func() ([]byte, error) {
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
		// A server that has answered already may have stopped reading: its response counts (RFC 9114, section 4.1).
		_ = stream.Close()
		err = c.taken(ctx, early)
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

// client returns what requests go through: a new one in place of one whose early data was refused, since that took its
// control stream with it.
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
