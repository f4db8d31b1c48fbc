package stub

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// datagrams is the exchanger of DoUDP. Each query has its own port and a random ID (RFC 5452). After a truncated answer it
// repeats the query over TCP.
type datagrams struct {
	address    netip.AddrPort
	retransmit time.Duration
	tcp        *session
}

func (d *datagrams) exchange(ctx context.Context, query []byte, question dns.Question) (*dns.Msg, cost, error) {
	socket, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(d.address))
	if err != nil {
		return nil, cost{}, err
	}
	defer socket.Close()
	spent := cost{localPort: portOf(socket.LocalAddr())}
	began := time.Now()
	answer, truncated, err := d.ask(ctx, socket, query, question, &spent)
	spent.query = time.Since(began)
	if truncated {
		retransmissions := spent.retries
		answer, spent, err = d.tcp.exchange(ctx, query, question)
		spent.tcpFallback = true
		spent.retries += retransmissions
	}
	return answer, spent, err
}

// ask sends the query and retransmits it after waits that double, until the context's deadline. It ignores datagrams that do
// not answer the query. If no answer comes, it returns the last fault of such a datagram or of the socket.
func (d *datagrams) ask(
	ctx context.Context, socket *net.UDPConn, query []byte, question dns.Question, spent *cost,
) (answer *dns.Msg, truncated bool, err error) {
	id := uint16(rand.Uint32()) // #nosec G115 G404 -- all bits are random: ChaCha8, seeded by the system
	wire := bytes.Clone(query)
	binary.BigEndian.PutUint16(wire, id)
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, false, err
	}
	deadline, _ := ctx.Deadline()
	reason := error(context.DeadlineExceeded)
	for wait := d.retransmit; ; wait *= 2 {
		resend := time.Now().Add(wait)
		last := !resend.Before(deadline)
		if last {
			resend = deadline
		}
		if err := socket.SetReadDeadline(resend); err != nil {
			return nil, false, err
		}
		// ICMP errors do not end the query: an upstream that restarts refuses datagrams for a short time.
		if _, err := socket.Write(wire); err != nil {
			reason = err
		}
		for {
			var done bool
			err := receive(raw, func(datagram []byte) {
				ours := len(datagram) >= headerBytes && binary.BigEndian.Uint16(datagram) == id && isResponse(datagram)
				if ours && isTruncated(datagram) {
					truncated, done = true, true // not parsed: it may end within a record
					return
				}
				var fault error
				answer, fault = checkAnswer(datagram, id, question)
				if done = fault == nil || ours && errors.Is(fault, errMalformed); done {
					spent.answerBytes = len(datagram)
				}
				reason = fault
			})
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				reason = err
			} else if truncated {
				return nil, true, nil
			} else if done {
				return answer, false, reason
			}
		}
		if last {
			return nil, false, reason
		}
		spent.retries++
	}
}

// buffers holds buffers for datagrams that have arrived. A query that waits for its answer uses none.
var buffers = sync.Pool{New: func() any { return new([maxMessageBytes]byte) }}

// receive waits for a datagram and calls use with it. use must not keep the datagram.
func receive(raw syscall.RawConn, use func(datagram []byte)) error {
	var fault error
	err := raw.Read(func(descriptor uintptr) bool {
		buffer := buffers.Get().(*[maxMessageBytes]byte)
		defer buffers.Put(buffer)
		n, err := unix.Read(int(descriptor), buffer[:]) // #nosec G115
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		if fault = err; err == nil {
			use(buffer[:n])
		}
		return true
	})
	return errors.Join(err, fault)
}

func (d *datagrams) reset(forget bool) int { return d.tcp.reset(forget) }
func (d *datagrams) stats() stats          { return d.tcp.stats() }
func (d *datagrams) close()                { d.tcp.close() }

func portOf(address net.Addr) uint16 {
	switch a := address.(type) {
	case *net.UDPAddr:
		return a.AddrPort().Port()
	case *net.TCPAddr:
		return a.AddrPort().Port()
	}
	return 0
}
