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

// rested returns the connection where it is up and has brought no answer for a while, else nil: its path may have gone
// meanwhile, since a NAT forgets it, a laptop is elsewhere, the server has started again.
func (s *session) rested() *attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.current
	if s.restedAfter > 0 && a != nil && a.up() && !a.dead() && a.users == 0 && !a.answered.IsZero() && time.Since(a.answered) > s.restedAfter {
		return a
	}
	return nil
}

// outcome is what an exchange returns.
type outcome struct {
	answer *dns.Msg
	spent  cost
	err    error
}

// exchange asks. Where the connection has rested and nothing at all comes from the server within one PTO, the query is
// asked again over a new connection, which those that come later use too, and the first answer counts: with early data
// it is there a round-trip after the PTO, and not seconds.
func (s *session) exchange(ctx context.Context, query []byte, question dns.Question) (*dns.Msg, cost, error) {
	rested := s.rested()
	if rested == nil {
		return s.ask(ctx, query, question)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan outcome, 2)
	ask := func() {
		answer, spent, err := s.ask(ctx, query, question)
		outcomes <- outcome{answer, spent, err}
	}
	before := rested.conn.path()
	go ask()
	patience := time.NewTimer(before.pto)
	defer patience.Stop()
	asked, silence := 1, time.Duration(0)
	select {
	case first := <-outcomes:
		return first.answer, first.spent, first.err
	case <-patience.C:
		if rested.conn.path().heard == before.heard {
			s.drop(rested)
			silence = before.pto
			go ask()
			asked++
		}
	}
	got := <-outcomes
	if got.err != nil && asked > 1 {
		got = <-outcomes
	}
	got.spent.retries += asked - 1
	got.spent.silence = silence
	return got.answer, got.spent, got.err
}
