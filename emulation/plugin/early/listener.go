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

// Options are the properties of QUIC listeners.
type Options struct {
	Retry     bool
	EarlyData Mode
	// SingleUse accepts early data from each ticket once.
	SingleUse   bool
	IdleTimeout time.Duration

	// Limits of a listener for all clients together: open connections, and streams that are served concurrently.
	MaxConnections, MaxStreams int
	// MaxShare is the share of both limits that clients of one address can use, percent.
	MaxShare int
	// ReadTimeout is how long a client may take to send a query, WriteTimeout how long it may take to accept an answer.
	ReadTimeout, WriteTimeout time.Duration
}

// DefaultOptions are the options of a server block without properties.
var DefaultOptions = Options{
	SingleUse: true, IdleTimeout: 30 * time.Second, MaxConnections: 200, MaxStreams: 1024, MaxShare: 50,
	ReadTimeout: 3 * time.Second, WriteTimeout: 30 * time.Second,
}

// Set sets a property. known is false if there is no property of that name.
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

// Policy determines how QUIC listeners accept connections and handle early data. The mode of early data can change while
// they run.
type Policy struct {
	Options
	tickets *TicketKeys
	mode    atomic.Int32
}

// NewPolicy returns a policy with these options. tickets are the ticket keys of the listeners' TLS configurations.
func NewPolicy(options Options, tickets *TicketKeys) *Policy {
	p := &Policy{Options: options, tickets: tickets}
	p.SetMode(options.EarlyData)
	return p
}

// Mode returns the current mode of early data.
func (p *Policy) Mode() Mode { return Mode(p.mode.Load()) }

// SetMode sets the mode of early data for new connections.
func (p *Policy) SetMode(mode Mode) { p.mode.Store(int32(mode)) }

// MayAnswer waits until a request on a connection may be answered; it returns false if the handshake fails or the context
// ends first. safe means that the request may be replayed. Other requests wait for the end of the handshake (RFC 8470,
// section 3; RFC 9250, section 4.5).
func (p *Policy) MayAnswer(ctx context.Context, conn *Conn, safe bool) bool {
	if safe && p.Mode() != Late {
		return true
	}
	return conn.AwaitHandshake(ctx) == nil
}

// Listener is a UDP socket that accepts QUIC connections before their handshake is complete.
type Listener struct {
	key      string // identifies the listener in a reload
	protocol Protocol
	policy   *Policy
	tls      *tls.Config
	config   *quic.Config
	streams  *Limit
	limit    *Limit
	refusing *Limit // excess connections that wait for their handshake
	socket   net.PacketConn

	serving func(*quic.EarlyListener)
	conns   *Conns

	mu        sync.Mutex
	served    sync.WaitGroup
	transport *quic.Transport // nil while suspended
	accepting *quic.EarlyListener
}

// Protocol is the application protocol of a listener.
type Protocol struct {
	Name string // of the listener
	ALPN string
	// NoError and ExcessiveLoad are the error codes that close a connection without an error, and one beyond the limit.
	NoError, ExcessiveLoad quic.ApplicationErrorCode
	// TokenSent is called for every NEW_TOKEN frame that is sent, including retransmissions; nil for no call. behindTicket
	// reports whether a session ticket was sent before the frame.
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
		StatelessResetKey: &l.policy.tickets.reset, // the same after a reload: resets connections of the old instance
		// Under load too: else datagrams with forged addresses could use up the limit of those addresses.
		VerifySourceAddress: func(net.Addr) bool { return l.policy.Retry || l.limit.HalfTaken() },
		ConnContext:         withClient,
	}
	l.accepting, err = l.transport.ListenEarly(l.tls, l.config)
	return err
}

// Addr returns the local address.
func (l *Listener) Addr() net.Addr { return l.socket.LocalAddr() }

// Close closes the listener, its connections and its socket.
func (l *Listener) Close() error {
	l.suspend()
	return l.socket.Close()
}

// suspend closes the listener's connections and stops it. The socket stays open for a successor.
func (l *Listener) suspend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.transport == nil {
		return
	}
	_ = l.accepting.Close()
	l.served.Wait() // so that the last accepted connection is closed too
	if l.conns != nil {
		l.conns.Close(l.protocol.Name)
	}
	_ = l.transport.Close()
	l.transport = nil
}

// resume serves again after suspend, if the reload failed.
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

// Serve starts to accept connections, up to the limit, until the listener closes. It does not block.
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

// refuse closes an excess connection after its handshake, so that the client learns the reason. The number of connections
// that wait for this is limited; others are closed at once.
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

// ServeStreams accepts the streams of a client and calls serve for each in a goroutine. Above the listener's limit a stream
// waits until another ends. Reading a stream fails with os.ErrDeadlineExceeded after the read timeout.
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
