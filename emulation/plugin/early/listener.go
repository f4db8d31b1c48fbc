package early

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
)

// Options are the properties that QUIC listeners have in common.
type Options struct {
	Retry       bool
	EarlyData   Mode
	IdleTimeout time.Duration
}

// DefaultOptions are those of a block that says nothing.
var DefaultOptions = Options{IdleTimeout: 30 * time.Second}

// Set gives one property its value; known is false where there is none of that name.
func (o *Options) Set(property, value string) (known bool, err error) {
	switch property {
	case "retry":
		o.Retry, err = onOff(property, value)
	case "early_data":
		o.EarlyData, err = ParseMode(value)
	case "idle_timeout":
		o.IdleTimeout, err = positive(property, value)
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

// Policy is how QUIC listeners accept connections and what becomes of early data, which may change while they run.
type Policy struct {
	Options
	mode atomic.Int32
}

// NewPolicy starts with what the options say.
func NewPolicy(options Options) *Policy {
	p := &Policy{Options: options}
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
	*quic.EarlyListener
	transport *quic.Transport
	socket    net.PacketConn
}

// Listen opens a UDP socket for connections of one application protocol.
func (p *Policy) Listen(address, alpn string, secured *tls.Config, config *quic.Config) (*Listener, error) {
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil, err
	}
	config.MaxIdleTimeout = p.IdleTimeout
	config.GetConfigForClient = func(*quic.ClientInfo) (*quic.Config, error) {
		now := config.Clone()
		now.Allow0RTT = p.Mode() != Off
		return now, nil
	}
	secured = secured.Clone()
	secured.NextProtos = []string{alpn}
	transport := &quic.Transport{
		Conn:                socket,
		VerifySourceAddress: func(net.Addr) bool { return p.Retry },
	}
	listener, err := transport.ListenEarly(secured, config)
	if err != nil {
		_ = socket.Close()
		return nil, err
	}
	return &Listener{listener, transport, socket}, nil
}

// Close closes the socket, and whatever is still open on it.
func (l *Listener) Close() error { return errors.Join(l.transport.Close(), l.socket.Close()) }
