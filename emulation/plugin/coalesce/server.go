package coalesce

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"crosslayer.example/emulation/internal/control"
	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

var log = clog.NewWithPlugin(pluginName)

// server holds the plugin's own listeners and its control socket.
type server struct {
	options
	policy      *early.Policy
	configs     []*dnsserver.Config
	tls         *tls.Config // nil without a certificate
	common      *shared
	tickets     *early.TicketKeys
	events      *eventLog
	connections *early.Conns

	listening     []listening
	closers       []func() error // in the order of opening
	quic          []*early.Listener
	tcp           *net.TCPListener
	control       *control.Socket
	replaced      bool // a successor has taken over in a reload
	controlClosed bool // the control socket was closed for the successor
}

// listening is a bound address in the answer to the command ready.
type listening struct {
	Listener string `json:"listener"`
	Network  string `json:"network"`
	Address  string `json:"address"`
}

// newServer returns a server with the options of a server block. start opens its files and sockets.
func newServer(opts options, configs []*dnsserver.Config, secured *tls.Config, common *shared) *server {
	s := &server{
		options: opts, policy: early.NewPolicy(opts.Options, common.tickets), configs: configs,
		common: common, tickets: common.tickets, events: common.events,
		connections: &early.Conns{HandshakeOver: func(c *early.Conn) { reportQUICConnection(c, common.events) }},
	}
	if secured != nil {
		s.tls = secured.Clone()
	}
	return s
}

// start opens all files and sockets of the options. If one fails, it closes the others.
func (s *server) start() (err error) {
	defer func() {
		if err != nil {
			_ = s.stop()
			err = plugin.Error(pluginName, err)
		}
	}()
	if old := predecessor.Load(); old != nil {
		old.replaced = true
	}
	if s.options.events != "" {
		if err := s.events.open(s.options.events); err != nil {
			return fmt.Errorf("events: %w", err)
		}
		s.closers = append(s.closers, s.events.close)
	}
	pages := site{}
	if s.pages != "" {
		if pages, err = loadSite(s.pages); err != nil {
			return err
		}
	}
	// All chains are created before a listener serves: NewChain writes to the configurations, which listeners read.
	var overHTTPS, overH3, overDoQ *early.Chain
	for _, c := range []struct {
		chain **early.Chain
		name  string
	}{{&overHTTPS, "https://" + s.https}, {&overH3, "https3://" + s.h3}, {&overDoQ, "quic://" + s.doq}} {
		if *c.chain, err = early.NewChain(c.name, s.configs); err != nil {
			return err
		}
	}
	if s.https != "" {
		if err := s.startHTTPS(s.web(listenerHTTPS, "doh", overHTTPS, pages)); err != nil {
			return fmt.Errorf("https: %w", err)
		}
	}
	if s.h3 != "" {
		if err := s.startH3(s.web(listenerH3, "doh3", overH3, pages)); err != nil {
			return fmt.Errorf("h3: %w", err)
		}
	}
	if s.doq != "" {
		if err := s.startDoQ(overDoQ); err != nil {
			return fmt.Errorf("doq: %w", err)
		}
	}
	if err := s.openControl(); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	early.IfReloadFails(func() { _ = s.stop() })
	return nil
}

// predecessor is the old instance's server during a reload; else nil.
var predecessor atomic.Pointer[server]

// openControl binds the control socket. In a reload it first closes the predecessor's.
func (s *server) openControl() (err error) {
	if s.options.control == "" {
		return nil
	}
	if old := predecessor.Load(); old != nil && old != s && old.control != nil {
		_ = old.control.Close()
		old.controlClosed = true
	}
	s.control, err = control.Listen(s.options.control, "server")
	return err
}

// Offered implements the early.Reloadable interface.
func (s *server) Offered() (packets []*early.Listener, streams []*net.TCPListener) {
	predecessor.Store(s)
	if s.tcp != nil {
		streams = []*net.TCPListener{s.tcp}
	}
	return s.quic, streams
}

// Resume implements the early.Reloadable interface.
func (s *server) Resume() error {
	predecessor.Store(nil)
	s.replaced = false
	if !s.controlClosed {
		return nil
	}
	s.controlClosed = false
	if err := s.openControl(); err != nil {
		return err
	}
	go s.control.Serve(s.commands())
	return nil
}

// ready starts to answer the control socket. It is called when all listeners, including those of CoreDNS, are bound.
func (s *server) ready(servers []caddy.ServerListener) {
	for _, l := range servers {
		if address := l.Addr(); address != nil {
			s.listening = append(s.listening, listening{"dns", address.Network(), address.String()})
		}
		if address := l.LocalAddr(); address != nil {
			s.listening = append(s.listening, listening{"dns", address.Network(), address.String()})
		}
	}
	if s.control != nil {
		go s.control.Serve(s.commands())
	}
}

// stop closes all connections, files and sockets, the last opened first.
func (s *server) stop() error {
	predecessor.CompareAndSwap(s, nil)
	var errs []error
	if s.control != nil {
		errs = append(errs, s.control.Close())
	}
	s.connections.Close("")
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers, s.listening = nil, nil
	return errors.Join(errs...)
}

func (s *server) startHTTPS(h *web) error {
	config := s.tls.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	config.MaxVersion = s.maxTLS
	reportTLSConnections(config, listenerHTTPS, s.events)
	tcp, err := early.ListenTCP(s.https)
	if err != nil {
		return err
	}
	s.tcp = tcp
	h.streams = early.NewLimit(s.MaxStreams, s.MaxShare)
	h.altSvc = &s.common.altSvc
	httpServer := &http.Server{
		Handler:           h,
		TLSConfig:         config,
		ConnState:         s.common.streams.track,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: 10 * time.Second, // including the handshake
		IdleTimeout:       s.IdleTimeout,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreamsOfOne},
		ErrorLog:          stdlog.New(debugLog{}, "", 0),
	}
	s.opened(listenerHTTPS, tcp.Addr(), func() error {
		shutDown := func(timeout time.Duration) error { // sends GOAWAY and waits for open requests (RFC 9113, section 6.8)
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			_ = httpServer.Shutdown(ctx)
			return httpServer.Close()
		}
		if !s.replaced {
			return shutDown(stopTimeout)
		}
		go func() { _ = shutDown(reloadTimeout) }() // in the background: the successor accepts new connections
		return nil
	})
	limited := early.LimitConns(tcp, early.NewLimit(s.MaxConnections, s.MaxShare))
	go func() { _ = httpServer.ServeTLS(limited, "", "") }()
	return nil
}

// stopTimeout and reloadTimeout are how long open requests over TCP may take at the end and at a reload.
const stopTimeout, reloadTimeout = time.Second / 2, 5 * time.Second

// maxStreamsOfOne is the maximum number of concurrent requests of one connection.
const maxStreamsOfOne = 100

// maxHeaderBytes is the maximum size of a request's header, as in CoreDNS.
const maxHeaderBytes = 16 << 10

// maxUniStreams allows the control stream, two streams of QPACK, and some of reserved types (RFC 9114, section 6.2).
const maxUniStreams = 8

func (s *server) startH3(h *web) error {
	protocol := early.Protocol{
		Name: listenerH3, ALPN: http3.NextProtoH3,
		NoError: quic.ApplicationErrorCode(http3.ErrCodeNoError), ExcessiveLoad: quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad),
		TokenSent: reportToken(listenerH3, s.events),
	}
	listener, err := s.policy.Listen(s.h3, protocol, s.tls, &quic.Config{
		MaxIncomingStreams: maxStreamsOfOne, MaxIncomingUniStreams: maxUniStreams,
	})
	if err != nil {
		return err
	}
	s.openedQUIC(listenerH3, listener)
	listener.Serve(s.connections, func(conn *early.Conn) {
		h3Server := &http3.Server{
			Handler:        h,
			MaxHeaderBytes: maxHeaderBytes,
			ConnContext: func(ctx context.Context, _ *quic.Conn) context.Context {
				return context.WithValue(ctx, connectionKey{}, conn)
			},
		}
		// Not http3.Server.ServeQUICConn: it accepts every stream at once and waits for the header without a timeout.
		requests, err := h3Server.NewRawServerConn(conn.Conn)
		if err != nil {
			return
		}
		go func() {
			for {
				stream, err := conn.AcceptUniStream(context.Background())
				if err != nil {
					return
				}
				go requests.HandleUnidirectionalStream(stream)
			}
		}()
		conn.ServeStreams(requests.HandleRequestStream)
	})
	return nil
}

// web returns the handler of an HTTP listener. dns is the listener's name in events of queries.
func (s *server) web(listener, dns string, chain *early.Chain, pages site) *web {
	return &web{listener: listener, dns: dns, site: pages, chain: chain, events: s.events, policy: s.policy}
}

func (s *server) startDoQ(chain *early.Chain) error {
	doq := &early.DoQServer{Policy: s.policy, Conns: s.connections, Chain: chain, ALPN: s.doqALPN}
	listener, err := doq.Listen(s.doq, s.tls)
	if err != nil {
		return err
	}
	s.openedQUIC(listenerDoQ, listener)
	doq.Serve(listener)
	return nil
}

func (s *server) openedQUIC(name string, listener *early.Listener) {
	s.quic = append(s.quic, listener)
	s.opened(name, listener.Addr(), listener.Close)
}

func (s *server) opened(listener string, address net.Addr, closer func() error) {
	s.listening = append(s.listening, listening{listener, address.Network(), address.String()})
	s.closers = append(s.closers, closer)
}

// debugLog writes messages of net/http, mostly about clients that have disconnected, at level debug.
type debugLog struct{}

func (debugLog) Write(line []byte) (int, error) {
	log.Debug(string(line))
	return len(line), nil
}
