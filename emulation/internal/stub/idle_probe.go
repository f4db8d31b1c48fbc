package stub

import (
	"context"
	"crypto/tls"
	"net"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// pathState is the state of a connection's path.
type pathState struct {
	pto      time.Duration // time within which the server acknowledges a packet
	received uint64        // counter that grows with all data and acknowledgements from the server
}

// Maximum delays of an acknowledgement: the default of QUIC (RFC 9000, section 18.2), and TCP's for a single segment (RFC
// 8985, section 7.2).
const (
	quicAckDelay = 25 * time.Millisecond
	tcpAckDelay  = 200 * time.Millisecond
)

func (c *quicConn) path() pathState {
	stats := c.ConnectionStats()
	// RFC 9002, section 6.2.1
	pto := stats.SmoothedRTT + max(4*stats.MeanDeviation, time.Millisecond) + quicAckDelay
	return pathState{pto, stats.PacketsReceived}
}

// tcpPath returns the path state of a TCP connection from the kernel. It is zero for a closed connection, on which queries
// fail at once.
func tcpPath(socket net.Conn) (p pathState) {
	if secured, ok := socket.(*tls.Conn); ok {
		socket = secured.NetConn()
	}
	raw, err := socket.(syscall.Conn).SyscallConn()
	if err != nil {
		return p
	}
	_ = raw.Control(func(descriptor uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(descriptor), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil { // #nosec G115
			// RFC 8985, section 7.2
			pto := 2*time.Duration(info.Rtt)*time.Microsecond + tcpAckDelay
			p = pathState{pto, info.Bytes_acked + info.Bytes_received}
		}
	})
	return p
}

// idleConnection returns the established connection if it has no users and no answer arrived for longer than probeIdleAfter;
// else nil. Its path may be lost: the NAT mapping expired, the client moved, or the server restarted.
func (s *session) idleConnection() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.current
	if s.probeIdleAfter > 0 && a != nil && a.up() && !a.dead() && a.users == 0 && !a.answered.IsZero() && time.Since(a.answered) > s.probeIdleAfter {
		return a
	}
	return nil
}

// outcome is the result of a query over one session.
type outcome struct {
	answer *dns.Msg
	spent  cost
	err    error
	via    *session
}

// exchange implements the exchanger interface. If the open connection delivers no answer, it also sends the query over a new
// connection. The first answer counts. There are two cases:
//
// The connection was idle, and no packet arrives from the server within one PTO. The new connection replaces the old one for
// later queries as well. With early data the answer arrives one round-trip after the PTO, not seconds later.
//
// Packets arrive, but no answer within hedgeAfter. The new connection replaces the old one only if it delivers the answer.
func (s *session) exchange(ctx context.Context, query []byte, question dns.Question) (*dns.Msg, cost, error) {
	idle := s.idleConnection()
	if idle == nil && s.hedgeAfter == 0 {
		return s.ask(ctx, query, question)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan outcome, 3)
	asked := 0
	ask := func(via *session) {
		asked++
		go func() {
			answer, spent, err := via.ask(ctx, query, question)
			outcomes <- outcome{answer, spent, err, via}
		}()
	}
	var probe, hedge <-chan time.Time
	var before pathState
	if idle != nil {
		before = idle.conn.path()
		probe = time.After(before.pto)
	}
	if s.hedgeAfter > 0 {
		hedge = time.After(s.hedgeAfter)
	}
	var silence time.Duration
	var other *session
	var replaced *connection
	ask(s)
	for failed := 0; ; {
		select {
		case <-probe:
			if idle.conn.path().received == before.received {
				s.drop(idle)
				silence = before.pto
				ask(s)
			}
		case <-hedge:
			if replaced = s.established(); replaced != nil {
				other = s.hedgeSession()
				ask(other)
			}
		case got := <-outcomes:
			if failed++; got.err != nil && failed < asked {
				continue
			}
			if other != nil {
				s.adoptOrClose(replaced, other, got)
			}
			got.spent.retries += asked - 1
			got.spent.silence = silence
			return got.answer, got.spent, got.err
		}
	}
}

// established returns the connection if its handshake is complete, else nil.
func (s *session) established() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.current; a != nil && a.up() && !a.dead() && !a.conn.early() {
		return a
	}
	return nil
}

// hedgeSession returns another session with the upstream, for one query.
func (s *session) hedgeSession() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &session{dial: s.dial, timeout: s.timeout, cache: s.cache, opened: s.opened}
}

// adoptOrClose makes the connection of the other session the current one if it delivered the answer; else it closes the
// other session.
func (s *session) adoptOrClose(replaced *connection, other *session, got outcome) {
	if got.err != nil || got.via != other {
		go other.close()
		return
	}
	other.mu.Lock()
	fresh := other.current
	other.current = nil
	other.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case fresh == nil: // the connection has ended meanwhile
	case s.current == replaced:
		s.retire(s.detach())
		s.current = fresh
	default: // another connection is current already
		go fresh.close()
	}
}
