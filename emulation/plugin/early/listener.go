package early

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// Options are the properties that QUIC listeners have in common.
type Options struct {
	Retry     bool
	EarlyData Mode
	// SingleUse accepts early data from each ticket once.
	SingleUse   bool
	IdleTimeout time.Duration

	// What clients can take of a listener at most: connections, and streams that are being served.
	MaxConnections, MaxStreams int
	// MaxShare is what those of one address can take of both, in percent.
	MaxShare int
	// ReadTimeout is how long a client may take to send a query, and WriteTimeout to take an answer.
	ReadTimeout, WriteTimeout time.Duration
}

// DefaultOptions are those of a block that says nothing.
var DefaultOptions = Options{
	SingleUse: true, IdleTimeout: 30 * time.Second, MaxConnections: 200, MaxStreams: 1024, MaxShare: 50,
	ReadTimeout: 3 * time.Second, WriteTimeout: 30 * time.Second,
}

// Set gives one property its value; known is false where there is none of that name.
func (o *Options) Set(property, value string) (known bool, err error) {
	switch property {
	case "retry":
		o.Retry, err = onOff(property, value)
	case "early_data":
		o.EarlyData, err = ParseMode(value)
	case "single_use":
		o.SingleUse, err = onOff(property, value)
	case "idle_timeout":
		o.IdleTimeout, err = positive(property, value)
	case "read_timeout":
		o.ReadTimeout, err = positive(property, value)
	case "write_timeout":
		o.WriteTimeout, err = positive(property, value)
	case "max_connections":
		o.MaxConnections, err = between(property, value, 1, math.MaxInt32)
	case "max_streams":
		o.MaxStreams, err = between(property, value, 1, math.MaxInt32)
	case "max_share":
		o.MaxShare, err = between(property, value, 1, 100)
	default:
		return false, nil
	}
	return true, err
}

func onOff(property, value string) (bool, error) {
	switch value {
	case "on":
		return true, nil
	case "off":
		return false, nil
	}
	return false, errors.New(property + " is either on or off, not '" + value + "'")
}

func positive(property, value string) (time.Duration, error) {
	duration, err := time.ParseDuration(value)
	if err == nil && duration <= 0 {
		err = errors.New(property + " must be positive")
	}
	return duration, err
}

func between(property, value string, least, most int) (int, error) {
	number, err := strconv.Atoi(value)
	if err != nil || number < least || number > most {
		err = fmt.Errorf("%s is a number from %d to %d, not '%s'", property, least, most, value)
	}
	return number, err
}

// Policy is how QUIC listeners accept connections and what becomes of early data, which may change while they run.
type Policy struct {
	Options
	tickets *TicketKeys
	mode    atomic.Int32
}

// NewPolicy starts with what the options say; tickets are the keys that the listeners' TLS configurations share.
func NewPolicy(options Options, tickets *TicketKeys) *Policy {
	p := &Policy{Options: options, tickets: tickets}
	p.SetMode(options.EarlyData)
	return p
}

// Mode says what becomes of early data now.
func (p *Policy) Mode() Mode { return Mode(p.mode.Load()) }

// SetMode changes what becomes of early data, for connections from now on.
func (p *Policy) SetMode(mode Mode) { p.mode.Store(int32(mode)) }

// MayAnswer returns when what arrived on a connection may be answered, false where that never comes. safe says that
// a replay of it does no harm; anything else waits for the handshake (RFC 8470, section 3; RFC 9250, section 4.5).
func (p *Policy) MayAnswer(ctx context.Context, conn *Conn, safe bool) bool {
	if safe && p.Mode() != Late {
		return true
	}
	return conn.AwaitHandshake(ctx) == nil
}

// Listener is a UDP socket that accepts QUIC connections before their handshake is complete.
type Listener struct {
	key      string // of what is handed over in a reload
	protocol Protocol
	policy   *Policy
	tls      *tls.Config
	config   *quic.Config
	streams  *Limit
	limit    *Limit
	refusing *Limit // connections beyond the limit that wait for their handshake
	socket   net.PacketConn

	serving func(*quic.EarlyListener)
	conns   *Conns

	mu        sync.Mutex
	served    sync.WaitGroup
	transport *quic.Transport // nil while the socket is handed over
	accepting *quic.EarlyListener
}

// Protocol is what a listener speaks.
type Protocol struct {
	Name string // of the listener
	ALPN string
	// NoError closes a connection where nothing is wrong, ExcessiveLoad where there are too many.
	NoError, ExcessiveLoad quic.ApplicationErrorCode
	// TokenSent, where it is set, is called for every packet that carries an address-validation token to a client, so
	// again where a packet is retransmitted; behindTicket reports that a session ticket was sent before it.
	TokenSent func(remote net.Addr, behindTicket bool)
}

// Listen opens a UDP socket for connections of one application protocol.
func (p *Policy) Listen(address string, protocol Protocol, secured *tls.Config, config *quic.Config) (*Listener, error) {
	key := protocol.Name + " " + address
	socket, err := socketFor(key, address)
	if err != nil {
		return nil, err
	}
	l := &Listener{
		key: key, protocol: protocol, policy: p, tls: secured.Clone(), config: config, socket: socket,
		streams: NewLimit(p.MaxStreams, p.MaxShare), limit: NewLimit(p.MaxConnections, p.MaxShare),
		refusing: NewLimit(p.MaxConnections, p.MaxShare),
	}
	config.MaxIdleTimeout = p.IdleTimeout
	config.GetConfigForClient = func(*quic.ClientInfo) (*quic.Config, error) {
		now := config.Clone()
		now.Allow0RTT = p.Mode() != Off
		return now, nil
	}
	config.Tracer = protocol.watch
	l.tls.NextProtos = []string{protocol.ALPN}
	if p.SingleUse {
		p.tickets.Once(l.tls)
	}
	if err := l.listen(); err != nil {
		_ = socket.Close()
		return nil, err
	}
	IfReloadFails(func() { _ = l.Close() })
	return l, nil
}

func (l *Listener) listen() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.transport = &quic.Transport{
		Conn:              l.socket,
		StatelessResetKey: &l.policy.tickets.reset, // tells clients of connections that a reload has cut
		// Under load, others than the sender of a datagram could be shut out by its forged address.
		VerifySourceAddress: func(net.Addr) bool { return l.policy.Retry || l.limit.HalfTaken() },
		ConnContext:         withClient,
	}
	l.accepting, err = l.transport.ListenEarly(l.tls, l.config)
	return err
}

// Addr is where clients find it.
func (l *Listener) Addr() net.Addr { return l.socket.LocalAddr() }

// Close closes the socket, and whatever is still open on it.
func (l *Listener) Close() error {
	l.suspend()
	return l.socket.Close()
}

// suspend tells the clients, and leaves the socket to another.
func (l *Listener) suspend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.transport == nil {
		return
	}
	_ = l.accepting.Close()
	l.served.Wait() // who was accepted a moment ago is told as well
	if l.conns != nil {
		l.conns.Close(l.protocol.Name)
	}
	_ = l.transport.Close()
	l.transport = nil
}

// resume serves again, where the other did not.
func (l *Listener) resume() error {
	l.mu.Lock()
	suspended := l.transport == nil
	l.mu.Unlock()
	if !suspended {
		return nil
	}
	if err := l.listen(); err != nil {
		return err
	}
	l.served.Go(func() { l.serving(l.accepting) })
	return nil
}

// Serve accepts connections, as many as there may be, until the listener closes.
func (l *Listener) Serve(conns *Conns, serve func(*Conn)) {
	l.conns = conns
	l.serving = func(accepting *quic.EarlyListener) {
		for {
			accepted, err := accepting.Accept(context.Background())
			if err != nil {
				return
			}
			release := l.limit.Try(accepted.RemoteAddr())
			if release == nil {
				l.refuse(accepted)
				continue
			}
			context.AfterFunc(accepted.Context(), release)
			conn := conns.track(l, accepted)
			go serve(conn)
		}
	}
	l.served.Go(func() { l.serving(l.accepting) })
}

// refuse closes a connection that is one too many. At most as many as may be open wait for their handshake, so that the
// client learns the reason; others are closed at once.
func (l *Listener) refuse(conn *quic.Conn) {
	const reason = "too many connections"
	release := l.refusing.Try(conn.RemoteAddr())
	if release == nil {
		_ = conn.CloseWithError(l.protocol.ExcessiveLoad, reason)
		return
	}
	go func() {
		defer release()
		closeAfterHandshake(context.Background(), conn, l.protocol.ExcessiveLoad, reason)
	}()
}

// ServeStreams accepts the streams that a client opens, one at a time where there are too many already. What is served
// has its request in time, or fails with os.ErrDeadlineExceeded.
func (c *Conn) ServeStreams(serve func(*quic.Stream)) {
	for {
		stream, err := c.AcceptStream(context.Background())
		if err != nil {
			return
		}
		release := c.listener.streams.Acquire(c.Context(), c.RemoteAddr())
		if release == nil {
			return
		}
		_ = stream.SetReadDeadline(time.Now().Add(c.listener.policy.ReadTimeout))
		go func() {
			defer release()
			serve(stream)
		}()
	}
}
