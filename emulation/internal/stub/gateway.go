package stub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// pageConnection determines whether pages and queries share a connection.
type pageConnection string

const (
	separateConnection pageConnection = "separate" // pages use a second connection, set up by the first request
	sharedConnection   pageConnection = "shared"   // pages use the connection of the queries
)

// Flow-control windows of Chromium, bytes: what a server may send before the client has read it.
const (
	pageStreamWindow     = 6 << 20
	pageConnectionWindow = 15 << 20
)

// maxRequests is the maximum number of concurrent requests of one connection of a browser.
const maxRequests = 100

// errMisdirected is the error of a request for a host that the upstream's certificate does not contain.
var errMisdirected = errors.New("the upstream's certificate does not name this host")

// gateway is a reverse proxy: it accepts HTTP/3 from browsers and forwards each request to the upstream over HTTP/3.
type gateway struct {
	upstream netip.Addr
	pages    *session
	socket   *net.UDPConn
	packets  *quic.Transport
	listener *quic.Listener
	web      *http3.Server

	mu      sync.Mutex
	carried map[uint16]int // requests since the last reset, by local port
}

// newGateway returns a gateway with a bound socket. serve starts it. It uses the session of the queries, or with
// separateConnection a second session with the same dialer.
func newGateway(s settings, upstream netip.Addr, queries *session) (*gateway, error) {
	if upstream.Is4() != s.gateway.Addr().Is4() {
		return nil, fmt.Errorf("--gateway %s: of another family than the upstream's address %s", s.gateway, upstream)
	}
	certificate, err := tls.LoadX509KeyPair(s.certificate, s.key)
	if err != nil {
		return nil, fmt.Errorf("--certificate and --key: %w", err)
	}
	g := &gateway{upstream: upstream, pages: queries, carried: map[uint16]int{}}
	if s.pageConnection == separateConnection {
		g.pages = newSession(queries.dial, s)
	}
	if g.socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.gateway)); err != nil {
		return nil, fmt.Errorf("--gateway %s: %w", s.gateway, err)
	}
	g.packets = &quic.Transport{Conn: g.socket}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate}}
	g.listener, err = g.packets.Listen(http3.ConfigureTLSConfig(config), &quic.Config{
		Versions:                []quic.Version{quic.Version1},
		MaxIdleTimeout:          s.idleTimeout,
		MaxIncomingStreams:      maxRequests,
		MaxIncomingUniStreams:   h3UniStreams,
		DisablePathMTUDiscovery: true,
	})
	if err != nil {
		_ = g.socket.Close()
		return nil, fmt.Errorf("--gateway %s: %w", s.gateway, err)
	}
	g.web = &http3.Server{Handler: g.handler(), MaxHeaderBytes: maxHeaderBytes}
	return g, nil
}

// handler returns the handler that forwards GET and HEAD requests without a body, and streams their responses back.
func (g *gateway) handler() http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", r.In.Host, r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery // unchanged, even if Go cannot parse it
			r.Out.Body = nil
			r.Out.Header.Add("Via", "3 crosslayer-stub") // RFC 9110, section 7.6.3
		},
		Transport:     g,
		FlushInterval: -1,
		ErrorHandler:  refuse,
		ErrorLog:      log.New(io.Discard, "", 0), // errors of browsers that have disconnected
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are passed on", http.StatusMethodNotAllowed)
			return
		}
		// ReverseProxy aborts the browser's response if the upstream's breaks off only with http.ServerContextKey set. http3
		// sets its own key instead.
		server := context.WithValue(r.Context(), http.ServerContextKey, r.Context().Value(http3.ServerContextKey))
		proxy.ServeHTTP(w, r.WithContext(server))
	})
}

// refuse responds with the reason why there is no response of the upstream.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusBadGateway
	switch {
	case r.Context().Err() != nil:
		return // the browser has cancelled the request
	case errors.Is(err, errMisdirected):
		status = http.StatusMisdirectedRequest
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	}
	http.Error(w, "crosslayer-stub: "+describe(err), status)
}

// RoundTrip implements the http.RoundTripper interface.
func (g *gateway) RoundTrip(request *http.Request) (*http.Response, error) {
	a, _, _, _ := g.pages.join()
	release := sync.OnceFunc(func() { g.pages.leave(a) })
	response, err := g.forward(a, request)
	if err != nil {
		release()
		return nil, err
	}
	response.Body = &bodyInUse{response.Body, release}
	return response, nil
}

// forward sends a request to the upstream once the handshake of the connection is complete.
func (g *gateway) forward(a *connection, request *http.Request) (*http.Response, error) {
	select {
	case <-a.done:
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	c := a.conn.(*h3Conn)
	// Required before a connection is used for another host (RFC 9114, section 3.3).
	if err := c.ConnectionState().TLS.PeerCertificates[0].VerifyHostname(hostName(request.Host)); err != nil {
		return nil, errMisdirected
	}
	g.mu.Lock()
	g.carried[c.port]++
	g.mu.Unlock()
	return c.client(nil).RoundTrip(request)
}

// hostName returns an authority without its port.
func hostName(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		return host
	}
	return authority
}

// bodyInUse is a response body that counts as a user of its connection until it is closed.
type bodyInUse struct {
	io.ReadCloser
	release func()
}

func (u *bodyInUse) Close() error {
	defer u.release()
	return u.ReadCloser.Close()
}

// redirect replaces the upstream's address in an answer with the gateway's. Browsers then send requests for hosts of the
// upstream to the gateway, and other requests directly.
func (g *gateway) redirect(answer *dns.Msg) {
	own := g.socket.LocalAddr().(*net.UDPAddr).IP
	for _, record := range answer.Answer {
		switch r := record.(type) {
		case *dns.A:
			if r.A.Equal(g.upstream.AsSlice()) {
				r.A = own
			}
		case *dns.AAAA:
			if r.AAAA.Equal(g.upstream.AsSlice()) {
				r.AAAA = own
			}
		}
	}
}

func (g *gateway) serve() {
	browsers := make(chan struct{}, maxClients)
	for {
		conn, err := g.listener.Accept(context.Background())
		if err != nil {
			return
		}
		select {
		case browsers <- struct{}{}:
			go func() {
				defer func() { <-browsers }()
				_ = g.web.ServeQUICConn(conn)
			}()
		default:
			_ = conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad), "")
		}
	}
}

// reset closes the connection of the pages, unless the queries share it, and clears the counts of requests.
func (g *gateway) reset(queries exchanger, forget bool) (closed int) {
	if queries != exchanger(g.pages) {
		closed = g.pages.reset(forget)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.carried = map[uint16]int{}
	return closed
}

// ports returns the number of requests by local port.
func (g *gateway) ports() map[uint16]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.carried)
}

func (g *gateway) close() {
	_ = g.web.Close()
	_ = g.listener.Close()
	_ = g.packets.Close()
	_ = g.socket.Close()
	g.pages.close()
}
