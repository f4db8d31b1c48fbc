// Package coalesce implements a plugin that serves DNS and web pages on the same HTTP/2 and HTTP/3 connections. It also
// serves DNS over QUIC with the plugin early, accepts commands on a control socket, and writes a log of events.
package coalesce

import (
	"context"

	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/coredns/plugin"
	dnsrequest "github.com/coredns/coredns/request"

	"github.com/miekg/dns"
)

// Coalesce is the handler of the plugin. It pads answers on encrypted transports and reports every query, including queries
// of the plugin's own listeners.
type Coalesce struct {
	Next plugin.Handler

	shared *shared
}

// Name implements the plugin.Handler interface.
func (c Coalesce) Name() string { return pluginName }

// ServeDNS implements the plugin.Handler interface.
func (c Coalesce) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	early.ClearReservedFlags(r)
	if early.TwoOPTs(r) {
		return dns.RcodeFormatError, nil
	}
	from, encrypted := early.OriginAt(ctx, w), early.IsEncrypted(ctx)
	rw := &responseWriter{ResponseWriter: w, pad: encrypted && early.WantsPadding(r), edns: r.IsEdns0() != nil}
	if !encrypted {
		rw.query = r
	}
	rw.report = func(rcode int) {
		q := r.Question[0]
		c.shared.events.write(queryEvent{
			Event: "query", Time: from.Arrival.UnixNano(), Listener: from.Listener,
			Remote: from.Remote, Name: q.Name, Type: dns.Type(q.Qtype).String(), Rcode: rcodeName(rcode),
			HandshakeComplete: from.HandshakeComplete, Resumed: from.Resumed, AddressValidated: from.AddressValidated,
			KeyShare: from.KeyShare, Initials: from.Initials,
		})
	}

	if answer, ok := c.shared.answers.to(r); ok {
		if !answer.wait(ctx) || answer.fault == faultSilence {
			return dns.RcodeSuccess, nil
		}
		if m := answer.message(r); m != nil {
			return dns.RcodeSuccess, rw.WriteMsg(m)
		}
	}
	rcode, err := early.ServeNext(ctx, c.Name(), c.Next, rw, r)
	if plugin.ClientWrite(rcode) {
		return rcode, err
	}
	// Written here and not by the server, so that refusals are padded and reported too.
	if writeErr := rw.WriteMsg(new(dns.Msg).SetRcode(r, rcode)); err == nil {
		err = writeErr
	}
	return dns.RcodeSuccess, err
}

// responseWriter pads or compresses an answer, reports it and writes it.
type responseWriter struct {
	dns.ResponseWriter
	pad    bool
	edns   bool     // the query has EDNS
	query  *dns.Msg // the query, if the answer is to be compressed; else nil
	report func(rcode int)
}

// WriteMsg implements the dns.ResponseWriter interface.
func (w *responseWriter) WriteMsg(m *dns.Msg) error {
	if !w.edns {
		early.RemoveOPT(m)
	}
	if w.pad {
		early.Pad(m)
	}
	w.report(m.Rcode)
	if w.query != nil && m.IsTsig() == nil { // a signed message must be packed by the underlying writer
		if wire := compressed(m, dnsrequest.Request{Req: w.query, W: w.ResponseWriter}); wire != nil {
			_, err := w.ResponseWriter.Write(wire)
			return err
		}
	}
	return w.ResponseWriter.WriteMsg(m)
}

// compressed returns m in wire format with name compression, as resolvers send it. CoreDNS itself compresses only messages
// that would not fit otherwise. It returns nil if m does not fit even so; CoreDNS then truncates it.
func compressed(m *dns.Msg, state dnsrequest.Request) []byte {
	m = m.Copy()
	state.Req = state.Req.Copy()
	state.SizeAndDo(m)
	m.Compress = true
	wire, err := m.Pack()
	if err != nil || len(wire) > state.Size() {
		return nil
	}
	return wire
}

func rcodeName(rcode int) string {
	if name, ok := dns.RcodeToString[rcode]; ok {
		return name
	}
	return dns.RcodeToString[dns.RcodeServerFailure]
}
