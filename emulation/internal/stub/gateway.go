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

// pageConnection is how pages share connections with queries.
type pageConnection string

const (
	separateConnection pageConnection = "separate" // pages have one of their own, set up by the first request
	sharedConnection   pageConnection = "shared"   // pages are asked for on the connection of the queries
)

// What a browser allows a server to send before it has read, bytes: Chromium's, of a stream and of a connection.
const (
	pageStreamWindow     = 6 << 20
	pageConnectionWindow = 15 << 20
)

// maxRequests is how many requests one browser's connection may have open at once.
const maxRequests = 100

// errMisdirected is a request for a host that the upstream cannot prove to be.
var errMisdirected = errors.New("the upstream's certificate does not name this host")

// gateway ends a browser's HTTP/3 here and asks for each of its resources over HTTP/3 upstream.
type gateway struct {
	upstream netip.Addr
	pages    *session
	socket   *net.UDPConn
	packets  *quic.Transport
	listener *quic.Listener
	web      *http3.Server

	mu      sync.Mutex
	carried map[uint16]int // requests since the last reset, by the port they left from
}

// newGateway binds its socket; no browser is answered before serve. What queries are asked on is shared, or copied.
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

// handler passes safe requests on, and their responses back as they come. Bodies are nobody's business here.
func (g *gateway) handler() http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", r.In.Host, r.In.Host
			r.Out.URL.RawQuery = r.In.URL.RawQuery // also one that Go would not read
			r.Out.Body = nil
			r.Out.Header.Add("Via", "3 crosslayer-stub") // RFC 9110, section 7.6.3
		},
		Transport:     g,
		FlushInterval: -1,
		ErrorHandler:  refuse,
		ErrorLog:      log.New(io.Discard, "", 0), // of browsers that have gone
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are passed on", http.StatusMethodNotAllowed)
			return
		}
		// With it a response that breaks off is a broken one for the browser too; http3 has a key of its own.
		server := context.WithValue(r.Context(), http.ServerContextKey, r.Context().Value(http3.ServerContextKey))
		proxy.ServeHTTP(w, r.WithContext(server))
	})
}

// refuse says why there is no response.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusBadGateway
	switch {
	case r.Context().Err() != nil:
		return // the browser needs none any more
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
	left := sync.OnceFunc(func() { g.pages.leave(a) })
	response, err := g.carry(a, request)
	if err != nil {
		left()
		return nil, err
	}
	response.Body = &using{response.Body, left}
	return response, nil
}

// carry asks for a resource as soon as the connection is up.
func (g *gateway) carry(a *connection, request *http.Request) (*http.Response, error) {
	select {
	case <-a.done:
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	c := a.conn.(*h3Conn)
	// What a client has to see to before it asks on a connection made for another name (RFC 9114, section 3.3).
	if err := c.ConnectionState().TLS.PeerCertificates[0].VerifyHostname(hostName(request.Host)); err != nil {
		return nil, errMisdirected
	}
	g.mu.Lock()
	g.carried[c.port]++
	g.mu.Unlock()
	return c.client(nil).RoundTrip(request)
}

// hostName is an authority without its port.
func hostName(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		return host
	}
	return authority
}

// using is a body that keeps its connection from being closed until it is read.
type using struct {
	io.ReadCloser
	left func()
}

func (u *using) Close() error {
	defer u.left()
	return u.ReadCloser.Close()
}

// redirect puts the gateway's own address where an answer has the upstream's: what the upstream itself serves is asked for
// here, all else where it is.
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

// reset closes the connection for pages where it is one of its own, and counts requests anew.
func (g *gateway) reset(queries exchanger, forget bool) (closed int) {
	if queries != exchanger(g.pages) {
		closed = g.pages.reset(forget)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.carried = map[uint16]int{}
	return closed
}

// ports tells how many requests left from which.
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
