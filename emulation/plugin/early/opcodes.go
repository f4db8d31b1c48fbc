package early

import (
	"context"
	"encoding/binary"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/dnsutil"

	"github.com/miekg/dns"
)

// headerBytes is the length of a DNS header.
const headerBytes = 12

// UnpackRequest parses a request by the rules of CoreDNS's own listeners. A request with an opcode that is not implemented is
// no error, even if the rest is malformed: Chain.Resolve answers it with NOTIMP (RFC 1035, section 4.1.1).
func UnpackRequest(wire []byte) (*dns.Msg, error) {
	request, err := dnsutil.UnpackRequest(wire)
	if err == nil || len(wire) < headerBytes {
		return request, err
	}
	bits := binary.BigEndian.Uint16(wire[2:])
	header := dns.MsgHdr{
		Id: binary.BigEndian.Uint16(wire), Opcode: int(bits >> 11 & 0xF), Response: bits>>15 != 0, RecursionDesired: bits>>8&1 != 0,
	}
	if header.Response || implemented(header.Opcode) {
		return nil, err
	}
	request = new(dns.Msg)
	if request.Unpack(wire) != nil {
		return &dns.Msg{MsgHdr: header}, nil
	}
	return request, nil
}

// implemented reports whether requests with an opcode are passed to the plugins.
func implemented(opcode int) bool { return opcode == dns.OpcodeQuery || opcode == dns.OpcodeNotify }

// ServeNext passes a request to the next plugin. If no plugin answers a NOTIFY (the plugin file does not), it returns NOTIMP
// and the caller must write the answer: without one the sender would repeat the NOTIFY (RFC 1996, section 3.6).
func ServeNext(ctx context.Context, name string, next plugin.Handler, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	if r.Opcode == dns.OpcodeQuery {
		return plugin.NextOrFailure(name, next, ctx, w, r)
	}
	watched := &watchedWriter{ResponseWriter: w}
	rcode, err := plugin.NextOrFailure(name, next, ctx, watched, r)
	if plugin.ClientWrite(rcode) && !watched.written {
		rcode = dns.RcodeNotImplemented
	}
	return rcode, err
}

// watchedWriter is a ResponseWriter that records whether an answer was written.
type watchedWriter struct {
	dns.ResponseWriter
	written bool
}

// WriteMsg implements the dns.ResponseWriter interface.
func (w *watchedWriter) WriteMsg(m *dns.Msg) error {
	w.written = true
	return w.ResponseWriter.WriteMsg(m)
}

// Write implements the dns.ResponseWriter interface.
func (w *watchedWriter) Write(wire []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(wire)
}
