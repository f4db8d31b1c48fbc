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

// Origin is what a listener of ours knows about a query.
type Origin struct {
	// Listener is its name.
	Listener string
	// Remote is the client's address and port.
	Remote  string
	Arrival time.Time
	// HandshakeComplete is false where the query came as early data.
	HandshakeComplete bool
	// Resumed says that the TLS session was resumed from a ticket.
	Resumed bool
	// AddressValidated says that the client's first packet had a token that proves its address; false over TCP.
	AddressValidated bool
	// KeyShare names the group of the TLS key exchange; Initials counts the packets of the client's hello, 0 over TCP.
	KeyShare string
	Initials int
	// SetStatus sets the HTTP status of a query that gets no DNS answer; nil without HTTP.
	SetStatus func(status int)
}

type originKey struct{}

// OriginOf tells a plugin where a query came from; ok is false for CoreDNS's own listeners.
func OriginOf(ctx context.Context) (from Origin, ok bool) {
	from, ok = ctx.Value(originKey{}).(Origin)
	return from, ok
}

// OriginAt describes a query, also where it came by one of CoreDNS's own listeners: udp, tcp or dot.
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

// Chain sends the queries of a listener of ours through the plugins of a server block.
type Chain struct {
	// A server that never listens: it gives queries the treatment of every other query.
	server *dnsserver.Server
}

// BlockConfigs are the configurations of all keys of a server block, one for each zone.
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

// NewChain makes the way through the plugins of a server block, see BlockConfigs. name stands for the listener in logs
// and metrics, as CoreDNS writes those of its own, e.g. quic://:853.
func NewChain(name string, configs []*dnsserver.Config) (*Chain, error) {
	server, err := dnsserver.NewServer(name, configs)
	if err != nil {
		return nil, err
	}
	return &Chain{server}, nil
}

// WithOrigin is the context of a query that came by a listener of ours.
func WithOrigin(ctx context.Context, from Origin) context.Context {
	return context.WithValue(ctx, originKey{}, from)
}

// Query is a query of a listener of ours.
type Query struct {
	*dns.Msg
	Wire          []byte // as it came: what TSIG has signed
	Origin        Origin
	Local, Remote net.Addr
}

// Resolve sends a query through the plugins and each message of the answer to send. It returns how many there were: more
// than one for a zone transfer, none where nothing answered.
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

// answerWriter hands answers to the listener that asked.
type answerWriter struct {
	ctx       context.Context
	query     Query
	pad, edns bool
	send      func(m *dns.Msg, wire []byte) error
	sent      int

	// Of the transaction's signature: what became of the query's, its key, and what the next one is chained to.
	tsig        error
	secret, mac string
	timersOnly  bool
}

func (w *answerWriter) LocalAddr() net.Addr  { return w.query.Local }
func (w *answerWriter) RemoteAddr() net.Addr { return w.query.Remote }

// WriteMsg sends a message as it has to be on our transports, whatever the plugins, or a server that they asked, put
// into it.
func (w *answerWriter) WriteMsg(m *dns.Msg) error {
	if err := w.ctx.Err(); err != nil {
		return err // the query was given up
	}
	if !w.edns {
		RemoveOPT(m)
	} else if opt := m.IsEdns0(); opt != nil { // RFC 9250, section 5.5.2
		opt.Option = slices.DeleteFunc(opt.Option, func(option dns.EDNS0) bool { return option.Option() == dns.EDNS0TCPKEEPALIVE })
	}
	if w.pad {
		Pad(m) // also what CoreDNS answers before its plugins
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
