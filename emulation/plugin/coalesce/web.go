package coalesce

import (
	"maps"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/coredns/coredns/plugin/pkg/doh"
	"github.com/coredns/coredns/plugin/pkg/response"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// web handles the HTTP requests of a listener: DNS at /dns-query, web pages at other paths.
type web struct {
	listener string // listenerH3 or listenerHTTPS
	dns      string // listener's name in events of queries: doh3 or doh
	site     site
	chain    *early.Chain
	events   *eventLog
	policy   *early.Policy
	streams  *early.Limit            // over TCP; nil over QUIC, where the listener limits streams
	altSvc   *atomic.Pointer[string] // over TCP: header of every response
}

type connectionKey struct{}

// exchange is a request with the state of its connection.
type exchange struct {
	*http.Request
	path              string // of the URL, normalized
	arrival           time.Time
	conn              *early.Conn // nil over TCP
	handshakeComplete bool        // when the request arrived
}

func (x exchange) addressValidated() bool { return x.conn != nil && x.conn.AddressValidated() }

func (x exchange) initials() int {
	if x.conn == nil {
		return 0
	}
	return x.conn.Initials()
}

// ServeHTTP implements the http.Handler interface.
func (h *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchange{Request: r, path: requestPath(r), arrival: time.Now(), handshakeComplete: true}
	if conn, ok := r.Context().Value(connectionKey{}).(*early.Conn); ok {
		x.conn = conn
		x.handshakeComplete = !conn.IsEarly(r.Body.(interface{ StreamID() quic.StreamID }).StreamID())
	}
	deadlines := http.NewResponseController(w)
	if r.Body != nil && r.Body != http.NoBody {
		_ = deadlines.SetReadDeadline(x.arrival.Add(h.policy.ReadTimeout))
	}
	status, res := h.admit(x)
	maps.Copy(w.Header(), res.header)
	if h.altSvc != nil {
		if value := h.altSvc.Load(); value != nil {
			w.Header().Set("Alt-Svc", *value)
		}
	}
	sent := 0
	_ = deadlines.SetWriteDeadline(time.Now().Add(h.policy.WriteTimeout))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		sent = h.write(w, deadlines, res.body) // fewer bytes than the body show that the client disconnected
	}
	if x.conn != nil && x.handshakeComplete {
		x.conn.Announce()
	}
	// Written before the handler returns and the stream ends: when a client has the whole response, the event is written.
	h.events.write(requestEvent{
		Event: "request", Time: x.arrival.UnixNano(), Done: x.arrival.Add(time.Since(x.arrival)).UnixNano(), Listener: h.listener,
		Remote: r.RemoteAddr, ServerName: r.TLS.ServerName, Host: r.Host, Method: r.Method, Path: x.path,
		Status: status, Bytes: sent, HandshakeComplete: x.handshakeComplete, Resumed: r.TLS.DidResume,
		AddressValidated: x.addressValidated(), KeyShare: early.KeyShare(*x.TLS), Initials: x.initials(),
		ECH: x.TLS.ECHAccepted,
	})
}

// chunkBytes is the amount that a client must accept within the write timeout. Most resources are smaller.
const chunkBytes = 256 << 10

// write sends a body in chunks, each with its own write timeout. It returns the number of bytes sent.
func (h *web) write(w http.ResponseWriter, deadlines *http.ResponseController, body []byte) (sent int) {
	for chunk := range slices.Chunk(body, chunkBytes) {
		_ = deadlines.SetWriteDeadline(time.Now().Add(h.policy.WriteTimeout))
		n, err := w.Write(chunk)
		sent += n
		if err != nil {
			break
		}
	}
	return sent
}

// admit returns the response to a request; 503 if the limit of concurrent requests is reached.
func (h *web) admit(x exchange) (int, *resource) {
	if h.streams == nil {
		return h.respond(x)
	}
	release := h.streams.Try(remoteAddr(x.RemoteAddr))
	if release == nil {
		return failure(http.StatusServiceUnavailable)
	}
	defer release()
	return h.respond(x)
}

// respond returns the response to a request. If the request must not be replayed, it first waits for the end of the
// handshake (RFC 8470, section 3).
func (h *web) respond(x exchange) (int, *resource) {
	safe := x.Method == http.MethodGet || x.Method == http.MethodHead
	if !h.mayAnswerNow(x, safe) {
		return failure(http.StatusTooEarly)
	}
	if x.path == doh.Path {
		return h.respondDNS(x)
	}
	paths, ok := h.site[hostName(x.Host)]
	switch {
	case !ok:
		return failure(http.StatusMisdirectedRequest)
	case paths[x.path] == nil:
		return failure(http.StatusNotFound)
	case !safe:
		return failure(http.StatusMethodNotAllowed)
	}
	return http.StatusOK, paths[x.path]
}

// respondDNS returns the response to a request of DNS over HTTPS (RFC 8484).
func (h *web) respondDNS(x exchange) (int, *resource) {
	if x.Method != http.MethodGet && x.Method != http.MethodPost {
		status, res := failure(http.StatusMethodNotAllowed)
		res.header["Allow"] = []string{"GET, POST"}
		return status, res
	}
	if kind, _, err := mime.ParseMediaType(x.Header.Get("Content-Type")); x.Method == http.MethodPost && (err != nil || kind != doh.MimeType) {
		return failure(http.StatusUnsupportedMediaType)
	}
	query, wire, err := doh.RequestToMsgWire(x.Request)
	if wire != nil {
		query, err = early.UnpackRequest(wire)
	}
	if err != nil {
		return failure(http.StatusBadRequest)
	}
	if query.Opcode != dns.OpcodeQuery && !h.mayAnswerNow(x, false) {
		return failure(http.StatusTooEarly)
	}
	local, _ := x.Context().Value(http.LocalAddrContextKey).(net.Addr)
	from := early.Origin{
		Listener: h.dns, Remote: x.RemoteAddr, Arrival: x.arrival,
		HandshakeComplete: x.handshakeComplete, Resumed: x.TLS.DidResume, AddressValidated: x.addressValidated(),
		KeyShare: early.KeyShare(*x.TLS), Initials: x.initials(),
	}
	unanswered := http.StatusInternalServerError
	from.SetStatus = func(status int) { unanswered = status }
	var body []byte
	var age time.Duration
	switch h.chain.Resolve(x.Context(), early.Query{Msg: query, Wire: wire, Origin: from, Local: local, Remote: remoteAddr(x.RemoteAddr)},
		func(answer *dns.Msg, wire []byte) error {
			body, age = wire, freshness(answer)
			return nil
		}) {
	case 0:
		return failure(unanswered)
	case 1:
		return http.StatusOK, &resource{body: body, header: map[string][]string{
			"Content-Type":   {doh.MimeType},
			"Content-Length": {strconv.Itoa(len(body))},
			"Cache-Control":  {"max-age=" + strconv.Itoa(int(age.Seconds()))},
		}}
	}
	return failure(http.StatusNotImplemented) // a zone transfer has more than one message
}

// freshness returns how long an answer may be cached: the smallest TTL of its records, and for a negative answer at most the
// MINIMUM field of the SOA record (RFC 8484, section 5.1; RFC 2308, section 5).
func freshness(answer *dns.Msg) time.Duration {
	kind, _ := response.Typify(answer, time.Now().UTC())
	age := dnsutil.MinimalTTL(answer, kind)
	if kind == response.NameError || kind == response.NoData {
		for _, record := range answer.Ns {
			if soa, ok := record.(*dns.SOA); ok {
				age = min(age, time.Duration(soa.Minttl)*time.Second)
			}
		}
	}
	return age
}

// mayAnswerNow waits until a request may be answered, see early.Policy.MayAnswer. Over TCP there is no early data.
func (h *web) mayAnswerNow(x exchange, safe bool) bool {
	return x.conn == nil || h.policy.MayAnswer(x.Context(), x.conn, safe)
}

func failure(status int) (int, *resource) {
	body := strings.ToLower(http.StatusText(status)) + "\n"
	return status, &resource{body: []byte(body), header: headerFor("text/plain; charset=utf-8", "", len(body))}
}

// requestPath returns the normalized path of a request.
func requestPath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return normalPath(r.URL.RawPath)
	}
	return normalPath(r.URL.EscapedPath())
}

// hostName returns the host of an authority, in lower case and without port and final dot.
func hostName(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		authority = host
	}
	return strings.TrimSuffix(strings.ToLower(authority), ".")
}

// remoteAddr returns the client's address for the plugins. It is a TCP address, because plugins truncate answers to UDP
// addresses.
func remoteAddr(address string) net.Addr {
	host, port, _ := net.SplitHostPort(address)
	number, _ := strconv.Atoi(port)
	return &net.TCPAddr{IP: net.ParseIP(host), Port: number}
}
