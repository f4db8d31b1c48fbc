package early

import (
	"context"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

type clientKey struct{}

// withClient keeps what the first packet of a connection said.
func withClient(ctx context.Context, client *quic.ClientInfo) (context.Context, error) {
	return context.WithValue(ctx, clientKey{}, *client), nil
}

func clientOf(ctx context.Context) quic.ClientInfo {
	client, _ := ctx.Value(clientKey{}).(quic.ClientInfo)
	return client
}

// AddressValidated says that the client's first packet had a token that proves its address. Until it is proved, a server
// sends at most three times what it received (RFC 9000, section 8.1).
func (c *Conn) AddressValidated() bool { return clientOf(c.Context()).AddrVerified }

// watchToken makes the tracer of a new connection.
func (p Protocol) watchToken(ctx context.Context, _ bool, _ quic.ConnectionID) qlogwriter.Trace {
	remote := clientOf(ctx).RemoteAddr
	return &tokenWatch{sent: func(behindTicket bool) { p.TokenSent(remote, behindTicket) }}
}

// tokenWatch looks for the first NEW_TOKEN frame of a connection, and whether the session ticket was before it: quic-go
// puts both into one packet, in an order that it draws.
type tokenWatch struct {
	sent   func(behindTicket bool)
	ticket bool
	done   bool
}

// AddProducer implements the qlogwriter.Trace interface.
func (w *tokenWatch) AddProducer() qlogwriter.Recorder { return w }

// SupportsSchemas implements the qlogwriter.Trace interface: events of HTTP/3 are not asked for.
func (w *tokenWatch) SupportsSchemas(string) bool { return false }

// RecordEvent implements the qlogwriter.Recorder interface.
func (w *tokenWatch) RecordEvent(event qlogwriter.Event) {
	packet, ok := event.(qlog.PacketSent)
	if !ok || w.done || packet.Header.PacketType != qlog.PacketType1RTT {
		return
	}
	for _, frame := range packet.Frames {
		switch frame.Frame.(type) {
		case *qlog.CryptoFrame: // after the handshake, a server has nothing but tickets to say in them
			w.ticket = true
		case *qlog.NewTokenFrame:
			w.done = true
			w.sent(w.ticket)
			return
		}
	}
}

// Close implements the qlogwriter.Recorder interface.
func (w *tokenWatch) Close() error { return nil }
