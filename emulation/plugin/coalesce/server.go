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

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

var log = clog.NewWithPlugin(pluginName)

// noError is the code a listener's connections are closed with where nothing is wrong.
var noError = map[string]quic.ApplicationErrorCode{
	listenerH3:  quic.ApplicationErrorCode(http3.ErrCodeNoError),
	listenerDoQ: doqNoError,
}

// server is the plugin's own listeners and its control socket.
type server struct {
	options
	mode        atomic.Int32 // of early data now; the option is the one at the start
	config      *dnsserver.Config
	tls         *tls.Config // nil without certificate
	tickets     *ticketKeys
	events      *eventLog
	connections *connections

	chain     *dnsserver.Server
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
		options: opts, config: config, tickets: common.tickets, events: common.events,
		connections: newConnections(common.events),
	}
	s.mode.Store(int32(opts.earlyData))
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
	// A server that never listens: it gives queries of the plugin's listeners the treatment of every other query.
	if s.chain, err = dnsserver.NewServer(pluginName+"://", []*dnsserver.Config{s.config}); err != nil {
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
		listener, err := s.listenQUIC(listenerDoQ, s.doq, "doq", &quic.Config{
			MaxIncomingUniStreams: -1, // DoQ has none (RFC 9250, section 4.2)
			// Answers fit into one packet: searching for a larger one would only add packets to a short exchange.
			DisablePathMTUDiscovery: true,
		})
		if err != nil {
			return fmt.Errorf("doq: %w", err)
		}
		go s.serveDoQ(listener)
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
	s.connections.close("")
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
	httpServer := &http.Server{
		Handler:           &web{listener: listenerHTTPS, dns: "doh", site: pages, resolve: s.resolve, events: s.events},
		TLSConfig:         config,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       s.idleTimeout,
		ErrorLog:          stdlog.New(debugLog{}, "", 0),
	}
	s.opened(listenerHTTPS, tcp.Addr(), httpServer.Close)
	go func() { _ = httpServer.ServeTLS(tcp, "", "") }()
	return nil
}

func (s *server) startH3(pages site) error {
	listener, err := s.listenQUIC(listenerH3, s.h3, http3.NextProtoH3, &quic.Config{})
	if err != nil {
		return err
	}
	h3Server := &http3.Server{
		Handler: &web{
			listener: listenerH3, dns: "doh3", site: pages, resolve: s.resolve, events: s.events, mayAnswer: s.mayAnswer,
		},
		ConnContext: func(ctx context.Context, conn *quic.Conn) context.Context {
			return context.WithValue(ctx, connectionKey{}, s.connections.track(listenerH3, conn))
		},
	}
	go func() { _ = h3Server.ServeListener(listener) }()
	return nil
}

// listenQUIC opens a UDP socket and accepts connections on it before their handshake is complete.
func (s *server) listenQUIC(name, address, alpn string, config *quic.Config) (*quic.EarlyListener, error) {
	udp, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil, err
	}
	config.MaxIdleTimeout = s.idleTimeout
	config.GetConfigForClient = func(*quic.ClientInfo) (*quic.Config, error) {
		now := config.Clone()
		now.Allow0RTT = s.earlyDataMode() != earlyDataOff
		return now, nil
	}
	tlsConfig := s.tls.Clone()
	tlsConfig.NextProtos = []string{alpn}
	transport := &quic.Transport{
		Conn:                udp,
		VerifySourceAddress: func(net.Addr) bool { return s.retry },
	}
	listener, err := transport.ListenEarly(tlsConfig, config)
	if err != nil {
		_ = udp.Close()
		return nil, err
	}
	s.opened(name, udp.LocalAddr(), func() error { return errors.Join(transport.Close(), udp.Close()) })
	return listener, nil
}

// earlyDataMode says what becomes of early data now.
func (s *server) earlyDataMode() earlyDataMode { return earlyDataMode(s.mode.Load()) }

// mayAnswer returns when what arrived on a connection may be answered, false where that never comes. safe says that
// a replay of it does no harm; anything else waits for the handshake (RFC 8470, section 3; RFC 9250, section 4.5).
func (s *server) mayAnswer(ctx context.Context, conn *connection, safe bool) bool {
	if safe && s.earlyDataMode() != earlyDataLate {
		return true
	}
	return conn.awaitHandshake(ctx) == nil
}

func (s *server) opened(listener string, address net.Addr, closer func() error) {
	s.listening = append(s.listening, listening{listener, address.Network(), address.String()})
	s.closers = append(s.closers, closer)
}

// resolve sends a query of one of the plugin's listeners through the plugin chain; nil where nothing answered.
func (s *server) resolve(ctx context.Context, from origin, local, remote net.Addr, query *dns.Msg) *dns.Msg {
	w := &answerWriter{local: local, remote: remote}
	ctx = context.WithValue(ctx, dnsserver.Key{}, s.chain)
	ctx = context.WithValue(ctx, dnsserver.LoopKey{}, 0)
	ctx = context.WithValue(ctx, originKey{}, from)
	s.chain.ServeDNS(ctx, w, query)
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

// debugLog takes what net/http has to say about clients that went away.
type debugLog struct{}

func (debugLog) Write(line []byte) (int, error) {
	log.Debug(string(line))
	return len(line), nil
}
