package coalesce

import (
	"context"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/coredns/coredns/plugin/pkg/doh"
	"github.com/coredns/coredns/plugin/pkg/response"

	"github.com/miekg/dns"
)

// web answers HTTP requests of one listener: DNS at /dns-query, else the page of the host asked for.
type web struct {
	listener string // listenerH3 or listenerHTTPS
	dns      string // the name of its queries: doh3 or doh
	site     site
	resolve  func(context.Context, early.Origin, net.Addr, net.Addr, *dns.Msg) *dns.Msg
	events   *eventLog
	// mayAnswer waits until what came over QUIC may be answered; false where that never comes.
	mayAnswer func(ctx context.Context, conn *early.Conn, safe bool) bool
}

type connectionKey struct{}

// exchange is one request and what has been decided about it.
type exchange struct {
	*http.Request
	arrival           time.Time
	conn              *early.Conn // nil on TCP
	handshakeComplete bool        // when the request arrived
}

// ServeHTTP implements the http.Handler interface.
func (h *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchange{Request: r, arrival: time.Now(), handshakeComplete: true}
	if conn, ok := r.Context().Value(connectionKey{}).(*early.Conn); ok {
		x.conn = conn
		x.handshakeComplete = conn.IsComplete()
	}
	status, res := h.respond(x)
	maps.Copy(w.Header(), res.header)
	w.WriteHeader(status)
	sent := 0
	if r.Method != http.MethodHead {
		sent, _ = w.Write(res.body) // a client that went away is told by the bytes in the event
	}
	if x.conn != nil && x.handshakeComplete {
		x.conn.Announce()
	}
	// Before the handler returns, and with it the end of the stream: whoever has the whole response finds the event.
	h.events.write(requestEvent{
		Event: "request", Time: x.arrival.UnixNano(), Done: time.Now().UnixNano(), Listener: h.listener,
		Remote: r.RemoteAddr, ServerName: r.TLS.ServerName, Host: r.Host, Method: r.Method, Path: r.URL.Path,
		Status: status, Bytes: sent, HandshakeComplete: x.handshakeComplete, Resumed: r.TLS.DidResume,
	})
}

// respond decides on the response, after the handshake where the request must not be replayed (RFC 8470, section 3).
func (h *web) respond(x exchange) (int, *resource) {
	safe := x.Method == http.MethodGet || x.Method == http.MethodHead
	if !h.mayAnswerNow(x, safe) {
		return failure(http.StatusTooEarly)
	}
	if x.URL.Path == doh.Path {
		return h.respondDNS(x)
	}
	paths, ok := h.site[hostName(x.Host)]
	switch {
	case !ok:
		return failure(http.StatusMisdirectedRequest)
	case paths[x.URL.Path] == nil:
		return failure(http.StatusNotFound)
	case !safe:
		return failure(http.StatusMethodNotAllowed)
	}
	return http.StatusOK, paths[x.URL.Path]
}

// respondDNS answers DNS over HTTPS (RFC 8484).
func (h *web) respondDNS(x exchange) (int, *resource) {
	query, err := doh.RequestToMsg(x.Request)
	if err != nil {
		return failure(http.StatusBadRequest)
	}
	if query.Opcode != dns.OpcodeQuery && !h.mayAnswerNow(x, false) {
		return failure(http.StatusTooEarly)
	}
	local, _ := x.Context().Value(http.LocalAddrContextKey).(net.Addr)
	answer := h.resolve(x.Context(), early.Origin{
		Listener: h.dns, Remote: x.RemoteAddr, Arrival: x.arrival,
		HandshakeComplete: x.handshakeComplete, Resumed: x.TLS.DidResume,
	}, local, remoteAddr(x.RemoteAddr), query)
	if answer == nil {
		return failure(http.StatusInternalServerError)
	}
	body, err := answer.Pack()
	if err != nil {
		return failure(http.StatusInternalServerError)
	}
	// An answer may be cached no longer than its records (RFC 8484, section 5.1).
	kind, _ := response.Typify(answer, time.Now().UTC())
	age := dnsutil.MinimalTTL(answer, kind)
	return http.StatusOK, &resource{body: body, header: map[string][]string{
		"Content-Type":   {doh.MimeType},
		"Content-Length": {strconv.Itoa(len(body))},
		"Cache-Control":  {"max-age=" + strconv.Itoa(int(age.Seconds()))},
	}}
}

// mayAnswerNow waits until a request may be answered; over TCP there is no early data.
func (h *web) mayAnswerNow(x exchange, safe bool) bool {
	return x.conn == nil || h.mayAnswer(x.Context(), x.conn, safe)
}

func failure(status int) (int, *resource) {
	body := strings.ToLower(http.StatusText(status)) + "\n"
	return status, &resource{body: []byte(body), header: headerFor("text/plain; charset=utf-8", "", len(body))}
}

// hostName is the name in an authority, in lower case and without port and final dot.
func hostName(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		authority = host
	}
	return strings.TrimSuffix(strings.ToLower(authority), ".")
}

// remoteAddr is a client's address as the plugin chain gets it: of TCP, where answers are not cut to a datagram.
func remoteAddr(address string) net.Addr {
	host, port, _ := net.SplitHostPort(address)
	number, _ := strconv.Atoi(port)
	return &net.TCPAddr{IP: net.ParseIP(host), Port: number}
}
