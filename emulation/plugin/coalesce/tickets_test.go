package coalesce

import (
	"crypto/tls"
	"net"
	"testing"

	"crosslayer.example/emulation/internal/control"
	"crosslayer.example/emulation/internal/servertest"

	"github.com/quic-go/quic-go"
)

// tlsListeners returns a function for each TLS listener, including that of the second server block. It connects a client and
// reports whether the session was resumed.
func tlsListeners(s *running) map[string]func(c servertest.Client) (resumed bool) {
	onTCP := func(address string, alpn ...string) func(servertest.Client) bool {
		return func(c servertest.Client) bool {
			conn, err := tls.Dial("tcp", address, c.Config(alpn...))
			if err != nil {
				s.t.Fatal(err)
			}
			defer conn.Close()
			// TLS 1.3 sends tickets after the handshake, and before any other data.
			_ = conn.CloseWrite()
			_, _ = conn.Read(make([]byte, 1))
			return conn.ConnectionState().DidResume
		}
	}
	onQUIC := func(address, alpn string) func(servertest.Client) bool {
		return func(c servertest.Client) bool {
			conn := c.Dial(s.t, address, alpn)
			<-conn.HandshakeComplete()
			servertest.Eventually(s.t, "a ticket", func() bool {
				session, ok := c.TLS.ClientSessionCache.Get(testHost)
				return ok && session != nil
			})
			_ = conn.CloseWithError(quic.ApplicationErrorCode(0), "")
			return conn.ConnectionState().TLS.DidResume
		}
	}
	return map[string]func(servertest.Client) bool{
		"https": onTCP(s.addresses["https/tcp"], "h2"),
		"dot":   onTCP(s.dotAddress()),
		"doq":   onQUIC(s.addresses["doq/udp"], "doq"),
		"h3":    onQUIC(s.addresses["h3/udp"], "h3"),
	}
}

// Tickets of each listener resume sessions at every other, until the keys of all listeners are rotated.
func TestTicketsAreSharedAndRotated(t *testing.T) {
	s := start(t, nil, bare)
	listeners := tlsListeners(s)
	for from, issue := range listeners {
		for to, resume := range listeners {
			c := s.Client()
			if issue(c) {
				t.Fatalf("%s: the first connection was resumed", from)
			}
			if !resume(c) {
				t.Errorf("a ticket from %s does not resume at %s", from, to)
			}
		}
	}
	for to, resume := range listeners {
		c := s.Client()
		listeners["h3"](c)
		var answer control.Reply
		s.command(`{"command": "rotate-ticket-keys"}`, &answer)
		if !answer.OK {
			t.Errorf("answer %+v", answer)
		}
		if resume(c) {
			t.Errorf("a ticket from before the rotation resumes at %s", to)
		}
		c = s.Client()
		listeners["h3"](c)
		if !resume(c) {
			t.Errorf("a ticket from after the rotation does not resume at %s", to)
		}
	}
}

// A listener on the wildcard address answers from the destination address of the client's packets.
func TestAnswersComeFromTheAddressAsked(t *testing.T) {
	s := start(t, map[string]string{"doq": ":0", "h3": ":0"}, "")
	for listener, alpn := range map[string]string{"doq": "doq", "h3": "h3"} {
		_, port, err := net.SplitHostPort(s.addresses[listener+"/udp"])
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"127.0.0.2", "127.0.0.3"} {
			// The client would ignore packets from another address, and its handshake would fail.
			conn := s.Client().Connect(t, net.JoinHostPort(host, port), alpn)
			<-conn.HandshakeComplete()
			servertest.Eventually(t, "the connection's event", func() bool {
				events := s.events("connection")
				return len(events) > 0 && events[len(events)-1]["local"] == net.JoinHostPort(host, port)
			})
		}
	}
}

// max_tls limits the TLS version over TCP. QUIC always uses TLS 1.3.
func TestOlderTLSOverTCP(t *testing.T) {
	s := start(t, map[string]string{"max_tls": "1.2"}, "")
	conn, err := tls.Dial("tcp", s.addresses["https/tcp"], s.Client().Config("h2"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if version := conn.ConnectionState().Version; version != tls.VersionTLS12 {
		t.Error(tls.VersionName(version))
	}
	s.Client().Warm(t, s.addresses["doq/udp"], "doq")
}
