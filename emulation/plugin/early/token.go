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

// peer holds what the server learns about the client of a connection from its packets.
type peer struct {
	quic.ClientInfo              // from the first packet
	initials        atomic.Int32 // Initial packets with CRYPTO frames
	early           sync.Map     // streams (quic.StreamID) whose first byte arrived in a 0-RTT packet
}

// withClient adds a peer with the data of a connection's first packet to the context.
func withClient(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
	return context.WithValue(ctx, clientKey{}, &peer{ClientInfo: *info}), nil
}

func clientOf(ctx context.Context) *peer {
	if known, ok := ctx.Value(clientKey{}).(*peer); ok {
		return known
	}
	return &peer{}
}

// AddressValidated reports whether the client's first packet had a valid address-validation token. Without one, the server
// first sends at most three times the bytes that it has received (RFC 9000, section 8.1).
func (c *Conn) AddressValidated() bool { return clientOf(c.Context()).AddrVerified }

// Initials returns the number of Initial packets with parts of the ClientHello, e.g. two with a post-quantum key share.
func (c *Conn) Initials() int { return int(clientOf(c.Context()).initials.Load()) }

// IsEarly reports whether a stream arrived as early data, i.e. its first byte in a 0-RTT packet. IsComplete alone does not
// answer this: with a short RTT or a busy server, the handshake may end before the stream is examined.
func (c *Conn) IsEarly(id quic.StreamID) bool {
	if !c.IsComplete() { // all data so far is early data
		return true
	}
	// 0-RTT packets that arrived before the packet that completed the handshake have been processed.
	_, early := clientOf(c.Context()).early.Load(id)
	return early
}

// KeyShare returns the name of the group of the TLS key exchange; empty before it is chosen.
func (c *Conn) KeyShare() string { return KeyShare(c.ConnectionState().TLS) }

// KeyShare returns the name of the group of a TLS key exchange; empty without one.
func KeyShare(state tls.ConnectionState) string {
	if state.CurveID == 0 {
		return ""
	}
	return state.CurveID.String()
}

// watch returns the tracer of a new connection. If QLOGDIR is set, it also writes a qlog there, as quic-go does by default.
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

// packetWatch is the tracer of a connection. It counts the packets of the ClientHello and records the streams that arrived as
// early data. It reports every NEW_TOKEN frame, and whether the session ticket was sent before: quic-go puts both into one
// packet in random order. Both are sent again if the client's acknowledgement takes longer than the probe timeout.
type packetWatch struct {
	known  *peer
	sent   func(behindTicket bool) // nil: tokens are not reported
	ticket bool
	file   qlogwriter.Recorder // nil without QLOGDIR
}

// AddProducer implements the qlogwriter.Trace interface.
func (w *packetWatch) AddProducer() qlogwriter.Recorder { return w }

// SupportsSchemas implements the qlogwriter.Trace interface. It returns false: events of HTTP/3 are not needed.
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
		case *qlog.CryptoFrame: // after the handshake, a server's CRYPTO frames carry only tickets
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
