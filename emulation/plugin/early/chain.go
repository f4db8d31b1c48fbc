package early

import (
	"context"
	"net"
	"time"

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
}

type originKey struct{}

// OriginOf tells a plugin where a query came from; ok is false for CoreDNS's own listeners.
func OriginOf(ctx context.Context) (from Origin, ok bool) {
	from, ok = ctx.Value(originKey{}).(Origin)
	return from, ok
}

// Chain sends the queries of a listener of ours through the plugins of a server block.
type Chain struct {
	// A server that never listens: it gives queries the treatment of every other query.
	server *dnsserver.Server
}

// NewChain makes the way through the plugins of config. name stands for the listener in logs and metrics.
func NewChain(name string, config *dnsserver.Config) (*Chain, error) {
	server, err := dnsserver.NewServer(name, []*dnsserver.Config{config})
	if err != nil {
		return nil, err
	}
	return &Chain{server}, nil
}

// WithOrigin is the context of a query that came by a listener of ours.
func WithOrigin(ctx context.Context, from Origin) context.Context {
	return context.WithValue(ctx, originKey{}, from)
}

// Resolve sends a query through the plugins; nil where nothing answered.
func (c *Chain) Resolve(ctx context.Context, from Origin, local, remote net.Addr, query *dns.Msg) *dns.Msg {
	w := &answerWriter{local: local, remote: remote}
	ctx = context.WithValue(ctx, dnsserver.Key{}, c.server)
	ctx = context.WithValue(ctx, dnsserver.LoopKey{}, 0)
	ctx = WithOrigin(ctx, from)
	c.server.ServeDNS(ctx, w, query)
	return w.answer
}

// answerWriter keeps the answer for the listener that asked.
type answerWriter struct {
	local, remote net.Addr
	answer        *dns.Msg
}

func (w *answerWriter) LocalAddr() net.Addr  { return w.local }
func (w *answerWriter) RemoteAddr() net.Addr { return w.remote }
func (w *answerWriter) WriteMsg(m *dns.Msg) error {
	w.answer = m
	return nil
}

func (w *answerWriter) Write(wire []byte) (int, error) {
	w.answer = new(dns.Msg)
	return len(wire), w.answer.Unpack(wire)
}
func (w *answerWriter) Close() error        { return nil }
func (w *answerWriter) TsigStatus() error   { return nil }
func (w *answerWriter) TsigTimersOnly(bool) {}
func (w *answerWriter) Hijack()             {}
func (w *answerWriter) Network() string     { return "" }
