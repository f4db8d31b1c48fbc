package coalesce

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
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

// server is the plugin's own listeners and its control socket.
type server struct {
	options
	policy      *early.Policy
	config      *dnsserver.Config
	tls         *tls.Config // nil without certificate
	tickets     *early.TicketKeys
	events      *eventLog
	connections *early.Conns

	chain     *early.Chain
	listening []listening
	closers   []func() error // in the order of opening
	control   *control.Socket
}

// listening is one bound address, as `ready` reports it.
type listening struct {
	Listener string `json:"listener"`
	Network  string `json:"network"`
	Address  string `json:"address"`
}

// newServer makes a server of a block's options; nothing is opened before start.
func newServer(opts options, config *dnsserver.Config, common *shared) *server {
	s := &server{
		options: opts, policy: early.NewPolicy(opts.Options, common.tickets), config: config, tickets: common.tickets, events: common.events,
		connections: &early.Conns{HandshakeOver: func(c *early.Conn) { reportQUICConnection(c, common.events) }},
	}
	if config.TLSConfig != nil {
		s.tls = config.TLSConfig.Clone()
	}
	return s
}

// start opens everything the options name, or nothing where one of them fails.
func (s *server) start() (err error) {
	defer func() {
		if err != nil {
			_ = s.stop()
			err = plugin.Error(pluginName, err)
		}
	}()
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
	if s.chain, err = early.NewChain(pluginName+"://", s.config); err != nil {
		return err
	}
	if s.https != "" {
		if err := s.startHTTPS(pages); err != nil {
			return fmt.Errorf("https: %w", err)
		}
	}
	if s.h3 != "" {
		if err := s.startH3(pages); err != nil {
			return fmt.Errorf("h3: %w", err)
		}
	}
	if s.doq != "" {
		if err := s.startDoQ(); err != nil {
			return fmt.Errorf("doq: %w", err)
		}
	}
	if s.options.control != "" {
		if s.control, err = control.Listen(s.options.control, "server"); err != nil {
			return fmt.Errorf("control: %w", err)
		}
		s.closers = append(s.closers, s.control.Close)
	}
	return nil
}

// ready tells the control socket that all listeners, those of CoreDNS included, are bound.
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

// stop closes everything, last opened first; clients are told.
func (s *server) stop() error {
	s.connections.Close("")
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers, s.listening = nil, nil
	return errors.Join(errs...)
}

func (s *server) startHTTPS(pages site) error {
	config := s.tls.Clone()
	config.NextProtos = []string{"h2", "http/1.1"}
	config.MaxVersion = s.maxTLS
	reportTLSConnections(config, listenerHTTPS, s.events)
	tcp, err := net.Listen("tcp", s.https)
	if err != nil {
		return err
	}
	h := s.web(listenerHTTPS, "doh", pages)
	h.streams = early.NewLimit(s.MaxStreams, s.MaxShare)
	httpServer := &http.Server{
		Handler:           h,
		TLSConfig:         config,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: 10 * time.Second, // with the handshake
		IdleTimeout:       s.IdleTimeout,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreamsOfOne},
		ErrorLog:          stdlog.New(debugLog{}, "", 0),
	}
	s.opened(listenerHTTPS, tcp.Addr(), httpServer.Close)
	tcp = early.LimitConns(tcp, early.NewLimit(s.MaxConnections, s.MaxShare))
	go func() { _ = httpServer.ServeTLS(tcp, "", "") }()
	return nil
}

// maxStreamsOfOne is how many requests one connection may have open at once.
const maxStreamsOfOne = 100

// maxHeaderBytes is the largest header of a request, as in CoreDNS.
const maxHeaderBytes = 16 << 10

// maxUniStreams is for the control stream and those of QPACK, and a few that mean nothing (RFC 9114, section 6.2).
const maxUniStreams = 8

func (s *server) startH3(pages site) error {
	protocol := early.Protocol{
		Name: listenerH3, ALPN: http3.NextProtoH3,
		NoError: quic.ApplicationErrorCode(http3.ErrCodeNoError), ExcessiveLoad: quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad),
	}
	listener, err := s.policy.Listen(s.h3, protocol, s.tls, &quic.Config{
		MaxIncomingStreams: maxStreamsOfOne, MaxIncomingUniStreams: maxUniStreams,
	})
	if err != nil {
		return err
	}
	s.opened(listenerH3, listener.Addr(), listener.Close)
	h := s.web(listenerH3, "doh3", pages)
	go listener.Serve(s.connections, func(conn *early.Conn) {
		h3Server := &http3.Server{
			Handler:        h,
			MaxHeaderBytes: maxHeaderBytes,
			ConnContext: func(ctx context.Context, _ *quic.Conn) context.Context {
				return context.WithValue(ctx, connectionKey{}, conn)
			},
		}
		// The server's own loop would take every stream at once, and wait for its header for ever.
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

// web is the handler of one listener for HTTP; dns is the name of its queries.
func (s *server) web(listener, dns string, pages site) *web {
	return &web{
		listener: listener, dns: dns, site: pages, resolve: s.chain.Resolve, events: s.events, policy: s.policy,
	}
}

func (s *server) startDoQ() error {
	doq := &early.DoQServer{Policy: s.policy, Conns: s.connections, Chain: s.chain}
	listener, err := doq.Listen(s.doq, s.tls)
	if err != nil {
		return err
	}
	s.opened(listenerDoQ, listener.Addr(), listener.Close)
	go doq.Serve(listener)
	return nil
}

func (s *server) opened(listener string, address net.Addr, closer func() error) {
	s.listening = append(s.listening, listening{listener, address.Network(), address.String()})
	s.closers = append(s.closers, closer)
}

// debugLog takes what net/http has to say about clients that went away.
type debugLog struct{}

func (debugLog) Write(line []byte) (int, error) {
	log.Debug(string(line))
	return len(line), nil
}
