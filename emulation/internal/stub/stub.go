// Package stub implements the program crosslayer-stub: a DNS forwarder to one upstream over any DNS transport, with metrics
// of every query. It does not depend on the server.
package stub

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	maxInFlight   = 8_000 // concurrent queries; others are answered with SERVFAIL
	maxClients    = 1_000 // concurrent TCP connections; others are closed (RFC 7766, section 10)
	maxPipelined  = 200   // concurrent queries of one TCP connection; others are read when earlier ones are answered
	acceptPause   = 10 * time.Millisecond
	receiveBuffer = 1 << 20
	portTries     = 10
)

// stub forwards queries of DNS clients to the upstream. It has no cache.
type stub struct {
	settings settings
	upstream exchanger
	metrics  *metrics
	slots    chan struct{} // a semaphore for concurrent queries
	udp      *net.UDPConn
	tcp      *net.TCPListener
	gateway  *gateway // nil without a gateway

	mu    sync.Mutex
	epoch *sync.WaitGroup // queries since the last reset whose rows are not written yet
}

// arrival is a query as received.
type arrival struct {
	wire     []byte
	time     time.Time
	from     netip.AddrPort
	protocol string // udp or tcp
}

// newStub returns a stub with both sockets bound. serve starts it.
func newStub(s settings, up exchanger, m *metrics) (*stub, error) {
	st := &stub{settings: s, upstream: up, metrics: m, slots: make(chan struct{}, maxInFlight), epoch: new(sync.WaitGroup)}
	var err error
	for range portTries {
		if st.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(s.listen)); err != nil {
			break
		}
		// With port 0, UDP uses the port that TCP was assigned. If it is in use over UDP, try again.
		address := net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.listen.Addr(), portOf(st.tcp.Addr())))
		if st.udp, err = net.ListenUDP("udp", address); err == nil {
			_ = st.udp.SetReadBuffer(receiveBuffer) // the system may grant less
			return st, nil
		}
		_ = st.tcp.Close()
		if s.listen.Port() != 0 {
			break
		}
	}
	return nil, listenFault(s, err)
}

func listenFault(s settings, err error) error {
	if cause := errors.Unwrap(errors.Unwrap(err)); cause != nil {
		err = cause
	}
	return fmt.Errorf("cannot listen on %s: %w; choose another address or port with --listen", s.listen, err)
}

func (s *stub) serve() {
	go s.serveTCP()
	go s.serveUDP()
	if s.gateway != nil {
		go s.gateway.serve()
	}
}

// reset closes the upstream connections, see exchanger. It returns when the rows of all earlier queries are written, or after
// resetTimeout.
func (s *stub) reset(forget bool) (closed int) {
	s.mu.Lock()
	before := s.epoch
	s.epoch = new(sync.WaitGroup)
	s.mu.Unlock()
	closed = s.upstream.reset(forget)
	if s.gateway != nil {
		closed += s.gateway.reset(s.upstream, forget)
	}
	logged := make(chan struct{})
	go func() { before.Wait(); close(logged) }()
	select {
	case <-logged:
	case <-time.After(resetTimeout):
	}
	return closed
}

func (s *stub) close() {
	_ = s.tcp.Close()
	_ = s.udp.Close()
	s.upstream.close()
	if s.gateway != nil {
		s.gateway.close()
	}
}

func (s *stub) serveUDP() {
	buffer := make([]byte, maxMessageBytes)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		query := arrival{bytes.Clone(buffer[:n]), time.Now(), from, "udp"}
		go func() {
			if answer := s.answer(query); answer != nil {
				_, _ = s.udp.WriteToUDPAddrPort(answer, from) // the client may have ended
			}
		}()
	}
}

func (s *stub) serveTCP() {
	clients := make(chan struct{}, maxClients)
	for {
		conn, err := s.tcp.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			logger.Printf("a client's connection was not accepted: %v", err)
			time.Sleep(acceptPause) // out of descriptors: wait for other connections to end
			continue
		}
		select {
		case clients <- struct{}{}:
			go func() {
				defer func() { <-clients }()
				s.serveConn(conn)
			}()
		default:
			_ = conn.Close()
		}
	}
}

// serveConn answers the queries of a TCP connection. Answers are sent in the order of their arrival (RFC 7766, section 7).
func (s *stub) serveConn(conn *net.TCPConn) {
	defer conn.Close()
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	var answering sync.WaitGroup
	defer answering.Wait()
	var writing sync.Mutex
	pipelined := make(chan struct{}, maxPipelined)
	for {
		pipelined <- struct{}{}
		_ = conn.SetReadDeadline(time.Now().Add(s.settings.clientTimeout)) // RFC 7766, section 6.2.3
		wire, err := readMessage(conn)
		if err != nil {
			return
		}
		query := arrival{wire, time.Now(), from, "tcp"}
		answering.Go(func() {
			defer func() { <-pipelined }()
			answer := s.answer(query)
			if answer == nil {
				return
			}
			writing.Lock()
			defer writing.Unlock()
			_ = conn.SetWriteDeadline(time.Now().Add(s.settings.clientTimeout))
			if _, err := conn.Write(framed(answer)); err != nil {
				_ = conn.Close() // the client has ended or does not read: its other queries need no answers
			}
		})
	}
}

// answer returns the answer to a query in wire format; nil if the query must not be answered. It writes the query's row before
// it returns.
func (s *stub) answer(query arrival) []byte {
	s.mu.Lock()
	epoch := s.epoch
	epoch.Add(1)
	s.mu.Unlock()
	defer epoch.Done()
	r := row{
		Time: query.time.UnixNano(), Client: query.from.String(), ClientProtocol: query.protocol,
		Protocol: s.settings.upstream.protocol,
	}
	answer, limit := s.resolve(query, &r)
	if answer == nil && r.Error == "" {
		return nil
	}
	var wire []byte
	if answer != nil {
		if query.protocol == "udp" {
			answer.Truncate(limit)
		}
		answer.Compress = true
		var err error
		if wire, err = answer.Pack(); err != nil {
			r.Error = string(errMalformed)
			answer = new(dns.Msg).SetRcode(answer, dns.RcodeServerFailure)
			wire, _ = answer.Pack()
		}
		r.Rcode = dns.RcodeToString[answer.Rcode]
	}
	r.TotalMs = milliseconds(time.Since(query.time))
	s.metrics.write(r)
	return wire
}

// resolve returns the upstream's answer, or an answer with an error code. limit is the largest datagram that the client
// accepts, bytes.
func (s *stub) resolve(query arrival, r *row) (answer *dns.Msg, limit int) {
	if len(query.wire) < headerBytes {
		r.Error = "malformed query"
		return nil, 0
	}
	if isResponse(query.wire) {
		return nil, 0 // answers to responses could loop
	}
	client, err := parse(query.wire)
	if err != nil || client.Opcode == dns.OpcodeQuery && len(client.Question) != 1 || twoOPTs(client) {
		r.Error = "malformed query"
		header := new(dns.Msg)
		header.Id = binary.BigEndian.Uint16(query.wire)
		return header.SetRcodeFormatError(header), dns.MinMsgSize
	}
	limit = datagramLimit(client)
	refuse := func(rcode int, why string) (*dns.Msg, int) {
		r.Error = why
		return failure(client, rcode, why), limit
	}
	if client.Opcode != dns.OpcodeQuery {
		return refuse(dns.RcodeNotImplemented, "opcode "+dns.OpcodeToString[client.Opcode])
	}
	question := client.Question[0]
	r.Name, r.Type = question.Name, dns.Type(question.Qtype).String()
	if opt := client.IsEdns0(); opt != nil && opt.Version() != 0 {
		return refuse(dns.RcodeBadVers, "EDNS version is not 0")
	}
	if question.Qtype == dns.TypeAXFR || question.Qtype == dns.TypeIXFR {
		return refuse(dns.RcodeNotImplemented, "zone transfer") // the answer may have more than one message
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return refuse(dns.RcodeServerFailure, errBusy.Error())
	}
	wire, err := upstreamQuery(client, s.settings.upstream.protocol)
	if err != nil {
		return refuse(dns.RcodeFormatError, "malformed query")
	}
	r.QueryBytes = len(wire)
	ctx, cancel := context.WithDeadline(context.Background(), query.time.Add(s.settings.timeout))
	defer cancel()
	answer, spent, err := s.upstream.exchange(ctx, wire, question)
	r.setCost(spent)
	if err != nil {
		return refuse(dns.RcodeServerFailure, describe(err))
	}
	if s.gateway != nil {
		s.gateway.redirect(answer)
	}
	return clientAnswer(client, answer), limit
}

// setCost copies the cost of a query into its row.
func (r *row) setCost(c cost) {
	r.Connection, r.NewConnection, r.LocalPort = c.connection, c.newConnection, c.localPort
	r.HandshakeMs, r.QueryMs = milliseconds(c.handshake), milliseconds(c.query)
	r.Resumed, r.EarlyData, r.EarlyDataAccepted = c.resumed, c.early, c.earlyDataAccepted
	r.AnswerBytes, r.Retries, r.TCPFallback = c.answerBytes, c.retries, c.tcpFallback
	r.SilenceMs = milliseconds(c.silence)
}
