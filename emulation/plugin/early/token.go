package early

import (
	"context"
	"crypto/tls"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

type clientKey struct{}

// peer is what is known of the far end of a connection.
type peer struct {
	quic.ClientInfo              // of its first packet
	initials        atomic.Int32 // packets with parts of its hello
	early           sync.Map     // the streams (quic.StreamID) that 0-RTT packets have begun
}

// withClient keeps what the first packet of a connection said.
func withClient(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	return context.WithValue(ctx, clientKey{}, &peer{ClientInfo: *info}), nil
}

func clientOf(ctx context.Context) *peer {
	if known, ok := ctx.Value(clientKey{}).(*peer); ok {
		return known
	}
	return &peer{}
}

// AddressValidated says that the client's first packet had a token that proves its address. Until it is proved, a server
// sends at most three times what it received (RFC 9000, section 8.1).
func (c *Conn) AddressValidated() bool { return clientOf(c.Context()).AddrVerified }

// Initials is how many Initial packets have brought parts of the client's hello: two where its key share is a large one.
func (c *Conn) Initials() int { return int(clientOf(c.Context()).initials.Load()) }

// IsEarly says that a stream came as early data: a 0-RTT packet began it. That the handshake is complete by the time
// anybody looks says nothing of it: where both ends are near, or this one is busy, its end is there at once.
func (c *Conn) IsEarly(id quic.StreamID) bool {
	if !c.IsComplete() { // whatever came until now was early
		return true
	}
	// The handshake completes with a later packet than those that are early: they have been seen.
	_, early := clientOf(c.Context()).early.Load(id)
	return early
}

// KeyShare names the group of the TLS key exchange; empty before it is chosen.
func (c *Conn) KeyShare() string { return KeyShare(c.ConnectionState().TLS) }

// KeyShare names the group of a TLS key exchange; empty where there was none.
func KeyShare(state tls.ConnectionState) string {
	if state.CurveID == 0 {
		return ""
	}
	return state.CurveID.String()
}

// watch makes the tracer of a new connection; where QLOGDIR is set, its qlog goes there too, as is quic-go's way.
func (p Protocol) watch(ctx context.Context, isClient bool, id quic.ConnectionID) qlogwriter.Trace {
	known := clientOf(ctx)
	w := &packetWatch{known: known}
	if p.TokenSent != nil {
		w.sent = func(behindTicket bool) { p.TokenSent(known.RemoteAddr, behindTicket) }
	}
	if file := qlog.DefaultConnectionTracer(ctx, isClient, id); file != nil {
		w.file = file.AddProducer()
	}
	return w
}

// packetWatch counts the packets of the client's hello, notes the streams that came as early data, and reports every
// NEW_TOKEN frame of a connection, and whether the session ticket was before it: quic-go puts both into one packet, in an
// order that it draws. Where the client's acknowledgement is later than a probe timeout, it sends both again.
type packetWatch struct {
	known  *peer
	sent   func(behindTicket bool) // nil: tokens are not reported
	ticket bool
	file   qlogwriter.Recorder // nil without QLOGDIR
}

// AddProducer implements the qlogwriter.Trace interface.
func (w *packetWatch) AddProducer() qlogwriter.Recorder { return w }

// SupportsSchemas implements the qlogwriter.Trace interface: events of HTTP/3 are not asked for.
func (w *packetWatch) SupportsSchemas(string) bool { return false }

// RecordEvent implements the qlogwriter.Recorder interface.
func (w *packetWatch) RecordEvent(event qlogwriter.Event) {
	if w.file != nil {
		w.file.RecordEvent(event)
	}
	switch packet := event.(type) {
	case qlog.PacketReceived:
		w.helloOrEarly(packet)
	case qlog.PacketSent:
		if w.sent != nil && packet.Header.PacketType == qlog.PacketType1RTT {
			w.ticketOrToken(packet)
		}
	}
}

func (w *packetWatch) helloOrEarly(packet qlog.PacketReceived) {
	switch packet.Header.PacketType {
	case qlog.PacketTypeInitial:
		if slices.ContainsFunc(packet.Frames, func(frame qlog.Frame) bool { _, hello := frame.Frame.(*qlog.CryptoFrame); return hello }) {
			w.known.initials.Add(1)
		}
	case qlog.PacketType0RTT:
		for _, frame := range packet.Frames {
			if data, ok := frame.Frame.(*qlog.StreamFrame); ok && data.Offset == 0 {
				w.known.early.Store(data.StreamID, nil)
			}
		}
	}
}

func (w *packetWatch) ticketOrToken(packet qlog.PacketSent) {
	for _, frame := range packet.Frames {
		switch frame.Frame.(type) {
		case *qlog.CryptoFrame: // after the handshake, a server has nothing but tickets to say in them
			w.ticket = true
		case *qlog.NewTokenFrame:
			w.sent(w.ticket)
		}
	}
}

// Close implements the qlogwriter.Recorder interface.
func (w *packetWatch) Close() error {
	if w.file != nil {
		return w.file.Close()
	}
	return nil
}
