// Package early implements a plugin that serves DNS over QUIC and answers early data (0-RTT) before the end of the handshake.
// All TLS listeners share one set of session-ticket keys. Other plugins use the package for their own listeners.
package early

import (
	"context"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/parse"
	"github.com/coredns/coredns/plugin/pkg/transport"

	"github.com/miekg/dns"
)

// Early is the handler of the plugin. It pads answers on encrypted transports.
type Early struct {
	Next plugin.Handler
}

// Name implements the plugin.Handler interface.
func (e Early) Name() string { return pluginName }

// ServeDNS implements the plugin.Handler interface.
func (e Early) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	ClearReservedFlags(r)
	if TwoOPTs(r) {
		return dns.RcodeFormatError, nil
	}
	if !WantsPadding(r) || !IsEncrypted(ctx) {
		return ServeNext(ctx, e.Name(), e.Next, w, r)
	}
	rcode, err := ServeNext(ctx, e.Name(), e.Next, paddingWriter{w}, r)
	if !plugin.ClientWrite(rcode) {
		// Written here and not by the server, so that refusals are padded too.
		if writeErr := (paddingWriter{w}).WriteMsg(new(dns.Msg).SetRcode(r, rcode)); err == nil {
			err = writeErr
		}
		rcode = dns.RcodeSuccess
	}
	return rcode, err
}

// IsEncrypted reports whether a query arrived over an encrypted transport.
func IsEncrypted(ctx context.Context) bool {
	if _, ours := OriginOf(ctx); ours {
		return true
	}
	server, ok := ctx.Value(dnsserver.Key{}).(*dnsserver.Server)
	if !ok {
		return false
	}
	scheme, _ := parse.Transport(server.Addr)
	return scheme == transport.TLS || scheme == transport.QUIC || scheme == transport.HTTPS || scheme == transport.HTTPS3
}

type paddingWriter struct{ dns.ResponseWriter }

// WriteMsg implements the dns.ResponseWriter interface.
func (w paddingWriter) WriteMsg(m *dns.Msg) error {
	Pad(m)
	return w.ResponseWriter.WriteMsg(m)
}
