// Package coalesce implements a plugin that serves DNS over QUIC, HTTP/2 and HTTP/3 and web pages on the same
// connections, with one set of session-ticket keys for every TLS listener and early data that is answered early.
package coalesce

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	dnsrequest "github.com/coredns/coredns/request"

	"github.com/miekg/dns"
)

// Coalesce is the plugin's place in the chain: it pads answers on encrypted transports and reports every query. The
// listeners of the plugin send their queries through the same chain.
type Coalesce struct {
	Next plugin.Handler

	shared *shared
}

// Name implements the plugin.Handler interface.
func (c Coalesce) Name() string { return pluginName }

// ServeDNS implements the plugin.Handler interface.
func (c Coalesce) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	from, ok := ctx.Value(originKey{}).(origin)
	if !ok {
		from = originOf(ctx, w)
	}
	rw := &responseWriter{ResponseWriter: w, pad: from.encrypted && hasOption(r, dns.EDNS0PADDING)}
	if !from.encrypted {
		rw.query = r
	}
	rw.report = func(rcode int) {
		q := r.Question[0]
		c.shared.events.write(queryEvent{
			Event: "query", Time: from.arrival.UnixNano(), Listener: from.listener,
			Remote: from.remote, Name: q.Name, Type: dns.Type(q.Qtype).String(), Rcode: rcodeName(rcode),
			HandshakeComplete: from.handshakeComplete, Resumed: from.resumed,
		})
	}

	rcode, err := plugin.NextOrFailure(c.Name(), c.Next, ctx, rw, r)
	if plugin.ClientWrite(rcode) {
		return rcode, err
	}
	// Written here and not by the server, so that refusals are padded and reported like every other answer.
	if writeErr := rw.WriteMsg(new(dns.Msg).SetRcode(r, rcode)); err == nil {
		err = writeErr
	}
	return dns.RcodeSuccess, err
}

// origin is what a listener knows about a query.
type origin struct {
	listener          string
	remote            string
	arrival           time.Time
	encrypted         bool
	handshakeComplete bool
	resumed           bool
}

type originKey struct{}

// originOf describes a query that came by one of CoreDNS's own listeners.
func originOf(ctx context.Context, w dns.ResponseWriter) origin {
	from := origin{listener: "udp", remote: w.RemoteAddr().String(), arrival: time.Now(), handshakeComplete: true}
	if _, ok := w.RemoteAddr().(*net.TCPAddr); ok {
		from.listener = "tcp"
	}
	if server, ok := ctx.Value(dnsserver.Key{}).(*dnsserver.Server); ok && strings.HasPrefix(server.Addr, "tls://") {
		from.listener, from.encrypted = listenerDoT, true
	}
	if stater, ok := w.(dns.ConnectionStater); ok {
		if state := stater.ConnectionState(); state != nil {
			from.resumed = state.DidResume
		}
	}
	return from
}

// responseWriter pads or compresses an answer and reports it before it leaves.
type responseWriter struct {
	dns.ResponseWriter
	pad    bool
	query  *dns.Msg // where the answer is to be compressed, else nil
	report func(rcode int)
}

// WriteMsg implements the dns.ResponseWriter interface.
func (w *responseWriter) WriteMsg(m *dns.Msg) error {
	if w.pad {
		pad(m)
	}
	w.report(m.Rcode)
	if w.query != nil {
		if wire := compressed(m, dnsrequest.Request{Req: w.query, W: w.ResponseWriter}); wire != nil {
			_, err := w.ResponseWriter.Write(wire)
			return err
		}
	}
	return w.ResponseWriter.WriteMsg(m)
}

// compressed returns m with its names compressed, as resolvers send them: CoreDNS spares itself the effort where a
// message fits without. It returns nil where m does not fit at all, which CoreDNS knows how to handle.
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

// paddingBlock is the block length for answers that RFC 8467, section 4.1 recommends.
const paddingBlock = 468

// pad fills m up to a multiple of paddingBlock, as the answer to a padded query has to be (RFC 7830, section 4).
func pad(m *dns.Msg) {
	opt := m.IsEdns0()
	if opt == nil {
		m.SetEdns0(dns.DefaultMsgSize, false) // size and flags are set from the query when the message is written
		opt = m.IsEdns0()
	}
	padding := new(dns.EDNS0_PADDING)
	opt.Option = append(opt.Option, padding)
	m.Compress = false // as CoreDNS sends messages that fit; the length below must be that of the wire
	if length := m.Len(); length <= dns.MaxMsgSize-paddingBlock {
		padding.Padding = make([]byte, (paddingBlock-length%paddingBlock)%paddingBlock)
	}
}

func hasOption(m *dns.Msg, code uint16) bool {
	opt := m.IsEdns0()
	if opt == nil {
		return false
	}
	for _, option := range opt.Option {
		if option.Option() == code {
			return true
		}
	}
	return false
}

func rcodeName(rcode int) string {
	if name, ok := dns.RcodeToString[rcode]; ok {
		return name
	}
	return dns.RcodeToString[dns.RcodeServerFailure]
}
