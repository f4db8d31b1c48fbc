package early

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

func client(address string) net.Addr {
	return &net.UDPAddr{IP: net.ParseIP(address), Port: 1234}
}

func TestLimit(t *testing.T) {
	l := NewLimit(4, 50)
	first, second := l.Try(client("192.0.2.1")), l.Try(client("192.0.2.1"))
	if first == nil || second == nil || l.Try(client("192.0.2.1")) != nil {
		t.Error("one address gets more or less than its share")
	}
	if !l.HalfTaken() {
		t.Error("2 of 4 are not half")
	}
	one := l.Try(client("2001:db8::1"))
	if one == nil || l.Try(client("2001:db8::2")) == nil || l.Try(client("2001:db8:0:1::1")) != nil {
		t.Error("neighbours in a /64 share, and there are 4 in all")
	}
	waiting := make(chan func())
	go func() { waiting <- l.Acquire(t.Context(), client("192.0.2.1")) }()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if l.Acquire(cancelled, client("192.0.2.9")) != nil {
		t.Error("there was one for a caller who had left")
	}
	one() // frees a unit, but the share of 192.0.2.1 is used up
	select {
	case <-waiting:
		t.Error("one address got more than its share")
	case <-time.After(soon / 10):
	}
	first()
	first() // the second call has no effect
	if release := <-waiting; release == nil {
		t.Error("what was given back is not granted")
	}
	second()
}

// listenOn returns a QUIC transport for clients with this local address.
func listenOn(t *testing.T, address string) *quic.Transport {
	t.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)})
	if err != nil {
		t.Fatal(err)
	}
	transport := &quic.Transport{Conn: socket}
	t.Cleanup(func() { transport.Close(); socket.Close() })
	return transport
}

// The number of connections of one address is limited. Other addresses and open connections are not affected.
func TestConnectionsAreLimited(t *testing.T) {
	s := start(t, "max_connections 8\nmax_share 50")
	server, err := net.ResolveUDPAddr("udp", s.doq)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Client()
	dial := func(from *quic.Transport) *quic.Conn {
		conn, err := from.Dial(t.Context(), server, c.Config(DoQ), nil)
		if err != nil {
			return nil
		}
		return conn
	}
	greedy, good := listenOn(t, "127.0.0.2"), listenOn(t, "127.0.0.3")
	open := dial(good)
	var kept []*quic.Conn
	for range 20 {
		if conn := dial(greedy); conn != nil {
			kept = append(kept, conn)
		}
	}
	servertest.Eventually(t, "all but 4 are closed", func() bool {
		n := 0
		for _, conn := range kept {
			if conn.Context().Err() == nil {
				n++
				continue
			}
			// During the handshake, application error codes cannot be sent (RFC 9000, section 10.2.3).
			var refused *quic.ApplicationError
			var during *quic.TransportError
			err := context.Cause(conn.Context())
			if !(errors.As(err, &refused) && refused.ErrorCode == DoQExcessiveLoad) &&
				!(errors.As(err, &during) && during.ErrorCode == quic.ApplicationErrorErrorCode) {
				t.Fatalf("refused with %v", err)
			}
		}
		return n == 4
	})
	for _, conn := range []*quic.Conn{open, dial(good)} {
		if answer := servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA))); len(answer.Answer) != 1 {
			t.Errorf("answer %v", answer)
		}
	}
	for _, conn := range kept {
		_ = conn.CloseWithError(0, "")
	}
	servertest.Eventually(t, "room for the greedy again", func() bool {
		conn := dial(greedy)
		if conn == nil {
			return false
		}
		time.Sleep(10 * time.Millisecond)
		return conn.Context().Err() == nil
	})
}

// A connection with streams without a complete query is closed. No goroutines remain.
func TestSlowQueries(t *testing.T) {
	s := start(t, "read_timeout 300ms\nmax_connections 200\nmax_share 100")
	before := runtime.NumGoroutine()
	var conns []*quic.Conn
	for range 20 {
		conn := s.Client().Connect(t, s.doq, DoQ)
		<-conn.HandshakeComplete()
		for range 50 {
			stream, err := conn.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Write([]byte{0xff}); err != nil { // the first byte of a length of more than 64 kB
				break
			}
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		select {
		case <-conn.Context().Done():
		case <-time.After(5 * time.Second):
			t.Fatal("the connection stays open")
		}
		var closed *quic.ApplicationError
		if err := context.Cause(conn.Context()); !errors.As(err, &closed) || closed.ErrorCode != DoQExcessiveLoad {
			t.Errorf("closed with %v", err)
		}
	}
	servertest.Eventually(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before+20 })
	servertest.Receive(t, servertest.Send(t, s.Client().Connect(t, s.doq, DoQ), servertest.Question(testHost, dns.TypeA)))
}

// A client that uses up its share of streams does not block another client.
func TestStreamsAreLimited(t *testing.T) {
	s := start(t, "read_timeout 1m\nmax_streams 8\nmax_share 50")
	server, err := net.ResolveUDPAddr("udp", s.doq)
	if err != nil {
		t.Fatal(err)
	}
	greedy, err := listenOn(t, "127.0.0.2").Dial(t.Context(), server, s.Client().Config(DoQ), nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		stream, err := greedy.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
	}
	good := s.Client().Connect(t, s.doq, DoQ)
	for range 20 {
		servertest.Receive(t, servertest.Send(t, good, servertest.Question(testHost, dns.TypeA)))
	}
}

// A query is answered before the end of its stream. If the end does not arrive in time, the connection is closed (RFC 9250,
// section 4.3.3).
func TestEndOfTheStreamThatNeverComes(t *testing.T) {
	s := start(t, "read_timeout 300ms")
	conn := s.Client().Connect(t, s.doq, DoQ)
	stream, err := conn.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Write(servertest.Framed(t, servertest.Question(testHost, dns.TypeA))); err != nil {
		t.Fatal(err)
	}
	servertest.Receive(t, stream)
	select {
	case <-conn.Context().Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the connection stays open")
	}
	var closed *quic.ApplicationError
	if err := context.Cause(conn.Context()); !errors.As(err, &closed) || closed.ErrorCode != DoQProtocolError {
		t.Errorf("closed with %v", err)
	}
}
