package early

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"

	"github.com/miekg/dns"
)

// Origin describes the transport of a query.
type Origin struct {
	// Listener is the name of the listener.
	Listener string
	// Remote is the client's address and port.
	Remote  string
	Arrival time.Time
	// HandshakeComplete is false if the query arrived as early data.
	HandshakeComplete bool
	// Resumed is true if the TLS session was resumed with a ticket.
	Resumed bool
	// AddressValidated is true if the client's first packet had a valid address-validation token; false over TCP.
	AddressValidated bool
	// KeyShare is the name of the group of the TLS key exchange. Initials is the number of packets of the ClientHello, 0
	// over TCP.
	KeyShare string
	Initials int
	// SetStatus sets the HTTP status of the response to a query without a DNS answer; nil without HTTP.
	SetStatus func(status int)
}

type originKey struct{}

// OriginOf returns the origin of a query. ok is false for queries of CoreDNS's own listeners.
func OriginOf(ctx context.Context) (from Origin, ok bool) {
	from, ok = ctx.Value(originKey{}).(Origin)
	return from, ok
}

// OriginAt returns the origin of a query. For CoreDNS's own listeners it derives the origin from w; their names are udp, tcp
// and dot.
func OriginAt(ctx context.Context, w dns.ResponseWriter) Origin {
	if from, ours := OriginOf(ctx); ours {
		return from
	}
	from := Origin{Listener: "udp", Remote: w.RemoteAddr().String(), Arrival: time.Now(), HandshakeComplete: true}
	if _, ok := w.RemoteAddr().(*net.TCPAddr); ok {
		from.Listener = "tcp"
	}
	if IsEncrypted(ctx) {
		from.Listener = "dot"
	}
	if stater, ok := w.(dns.ConnectionStater); ok {
		if state := stater.ConnectionState(); state != nil {
			from.Resumed = state.DidResume
		}
	}
	return from
}

// Chain passes queries of a plugin's own listener to the plugins of a server block.
type Chain struct {
	// server does not listen. It processes queries like those of CoreDNS's own listeners.
	server *dnsserver.Server
}

// BlockConfigs returns the configurations of a server block, one for each zone.
func BlockConfigs(c *caddy.Controller) (configs []*dnsserver.Config) {
	of := *c
	for of.ServerBlockKeyIndex = range max(1, len(c.ServerBlockKeys)) {
		config := dnsserver.GetConfig(&of)
		if !slices.ContainsFunc(configs, func(other *dnsserver.Config) bool { return other.Zone == config.Zone }) {
			configs = append(configs, config)
		}
	}
	return configs
}

// NewChain returns the chain for the configurations of a server block, see BlockConfigs. name is the listener in logs and
// metrics, in the format of CoreDNS, e.g. quic://:853.
func NewChain(name string, configs []*dnsserver.Config) (*Chain, error) {
	server, err := dnsserver.NewServer(name, configs)
	if err != nil {
		return nil, err
	}
	return &Chain{server}, nil
}

// WithOrigin returns the context of a query with its origin.
func WithOrigin(ctx context.Context, from Origin) context.Context {
	return context.WithValue(ctx, originKey{}, from)
}

// Query is a query of a plugin's own listener.
type Query struct {
	*dns.Msg
	Wire          []byte // as received, to verify its TSIG
	Origin        Origin
	Local, Remote net.Addr
}

// Resolve passes a query to the plugins and calls send with each message of the answer. It returns the number of messages:
// more than one for a zone transfer, 0 if no plugin answered.
func (c *Chain) Resolve(ctx context.Context, q Query, send func(m *dns.Msg, wire []byte) error) int {
	ClearReservedFlags(q.Msg)
	w := &answerWriter{ctx: ctx, query: q, pad: WantsPadding(q.Msg), edns: q.IsEdns0() != nil, send: send}
	if tsig := q.IsTsig(); tsig != nil {
		w.mac = tsig.MAC
		var known bool
		if w.secret, known = c.server.TsigSecret[tsig.Hdr.Name]; known {
			w.tsig = dns.TsigVerify(q.Wire, w.secret, "", false)
		} else {
			w.tsig = dns.ErrSecret
		}
	}
	if !implemented(q.Opcode) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(q.Msg, dns.RcodeNotImplemented))
		return w.sent
	}
	ctx = context.WithValue(ctx, dnsserver.Key{}, c.server)
	ctx = context.WithValue(ctx, dnsserver.LoopKey{}, 0)
	ctx = WithOrigin(ctx, q.Origin)
	c.server.ServeDNS(ctx, w, q.Msg)
	return w.sent
}

// answerWriter is the ResponseWriter of Resolve. It passes answers to the listener.
type answerWriter struct {
	ctx       context.Context
	query     Query
	pad, edns bool
	send      func(m *dns.Msg, wire []byte) error
	sent      int

	// TSIG: the result for the query, the key, and the MAC that the next signature depends on.
	tsig        error
	secret, mac string
	timersOnly  bool
}

func (w *answerWriter) LocalAddr() net.Addr  { return w.query.Local }
func (w *answerWriter) RemoteAddr() net.Addr { return w.query.Remote }

// WriteMsg sends a message. It corrects what plugins and upstream servers may put into it: OPT record, edns-tcp-keepalive
// option and padding.
func (w *answerWriter) WriteMsg(m *dns.Msg) error {
	if err := w.ctx.Err(); err != nil {
		return err // the query was cancelled
	}
	if !w.edns {
		RemoveOPT(m)
	} else if opt := m.IsEdns0(); opt != nil { // RFC 9250, section 5.5.2
		opt.Option = slices.DeleteFunc(opt.Option, func(option dns.EDNS0) bool { return option.Option() == dns.EDNS0TCPKEEPALIVE })
	}
	if w.pad {
		Pad(m) // here, because CoreDNS answers some queries before the plugins
	}
	wire, err := w.pack(m)
	if err != nil {
		return err
	}
	w.sent++
	return w.send(m, wire)
}

func (w *answerWriter) pack(m *dns.Msg) (wire []byte, err error) {
	if m.IsTsig() == nil {
		return m.Pack()
	}
	wire, w.mac, err = dns.TsigGenerate(m, w.secret, w.mac, w.timersOnly)
	return wire, err
}

func (w *answerWriter) Write(wire []byte) (int, error) {
	m := new(dns.Msg)
	if err := m.Unpack(wire); err != nil {
		return 0, err
	}
	return len(wire), w.WriteMsg(m)
}
func (w *answerWriter) Close() error          { return nil }
func (w *answerWriter) TsigStatus() error     { return w.tsig }
func (w *answerWriter) TsigTimersOnly(b bool) { w.timersOnly = b }
func (w *answerWriter) Hijack()               {}
func (w *answerWriter) Network() string       { return "" }
