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

// pathState is what a connection knows of its path.
type pathState struct {
	pto   time.Duration // by when the server has acknowledged a packet that reached it
	heard uint64        // grows with whatever comes from the server
}

// Longest delays of an acknowledgement: QUIC's where a peer tells no other (RFC 9000, section 18.2), and TCP's of a single
// segment (RFC 8985, section 7.2).
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

// tcpPath asks the kernel; of a connection that is closed it knows nothing, and who asks there is told at once.
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

// idleConnection returns the established connection if no answer came on it for longer than probeIdleAfter, else nil. Its path
// may be lost: the NAT mapping expired, the client moved, or the server restarted.
func (s *session) idleConnection() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.current
	if s.probeIdleAfter > 0 && a != nil && a.up() && !a.dead() && a.users == 0 && !a.answered.IsZero() && time.Since(a.answered) > s.probeIdleAfter {
		return a
	}
	return nil
}

// outcome is what an exchange returns.
type outcome struct {
	answer *dns.Msg
	spent  cost
	err    error
	over   *session
}

// exchange asks, and over a new connection too where the one there is brings no answer. The first answer counts.
//
// Where the connection was idle and nothing at all comes from the server within one PTO, queries that come later use the
// new one as well: with early data the answer is there a round-trip after the PTO, and not seconds. Where the server is
// alive but does not answer within hedgeAfter, the new connection replaces the old one only if it brings the answer.
func (s *session) exchange(ctx context.Context, query []byte, question dns.Question) (*dns.Msg, cost, error) {
	idle := s.idleConnection()
	if idle == nil && s.hedgeAfter == 0 {
		return s.ask(ctx, query, question)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan outcome, 3)
	asked := 0
	ask := func(over *session) {
		asked++
		go func() {
			answer, spent, err := over.ask(ctx, query, question)
			outcomes <- outcome{answer, spent, err, over}
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
			if idle.conn.path().heard == before.heard {
				s.drop(idle)
				silence = before.pto
				ask(s)
			}
		case <-hedge:
			if replaced = s.established(); replaced != nil {
				other = s.sibling()
				ask(other)
			}
		case got := <-outcomes:
			if failed++; got.err != nil && failed < asked {
				continue
			}
			if other != nil {
				s.settle(replaced, other, got)
			}
			got.spent.retries += asked - 1
			got.spent.silence = silence
			return got.answer, got.spent, got.err
		}
	}
}

// established returns the connection where its handshake is complete, else nil.
func (s *session) established() *connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.current; a != nil && a.up() && !a.dead() && !a.conn.early() {
		return a
	}
	return nil
}

// sibling makes another session with the upstream, for one query.
func (s *session) sibling() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &session{dial: s.dial, timeout: s.timeout, kept: s.kept, opened: s.opened}
}

// settle makes the connection of the other session this one's where it brought the answer, and closes it elsewhere.
func (s *session) settle(replaced *connection, other *session, got outcome) {
	if got.err != nil || got.over != other {
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
	case fresh == nil: // it has ended meanwhile
	case s.current == replaced:
		s.retire(s.detach())
		s.current = fresh
	default: // there is another by now
		go fresh.close()
	}
}
