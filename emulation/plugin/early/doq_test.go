package early

import (
	"testing"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/miekg/dns"
)

const testHost = servertest.Host

// Answers over DoQ are not truncated to the client's UDP payload size.
func TestDoQDoesNotTruncate(t *testing.T) {
	s := start(t, "")
	conn := s.Client().Connect(t, s.doq, "doq")
	answer := servertest.Receive(t, servertest.Send(t, conn, servertest.Question("long.example.org", dns.TypeTXT)))
	if answer.Truncated || len(answer.Answer) != 1 || answer.Len() < 4000 {
		t.Errorf("%d bytes, truncated: %v", answer.Len(), answer.Truncated)
	}
}

func TestDoQProtocolErrors(t *testing.T) {
	s := start(t, "")
	pack := func(change func(*dns.Msg)) []byte {
		m := servertest.Question(testHost, dns.TypeA)
		change(m)
		return servertest.Framed(t, m)
	}
	good := pack(func(*dns.Msg) {})
	for name, wire := range map[string][]byte{
		"message ID": pack(func(m *dns.Msg) { m.Id = 1 }),
		"keepalive": pack(func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_TCP_KEEPALIVE{Code: dns.EDNS0TCPKEEPALIVE}}
		}),
		"end inside the length":  good[:1],
		"end inside the message": good[:len(good)-1],
		"no message":             {},
		"not DNS":                {0, 3, 1, 2, 3},
		"two queries":            append(append([]byte{}, good...), good...),
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.Client().Connect(t, s.doq, "doq")
			servertest.SendRaw(t, conn, wire)
			wantClosed(t, conn, DoQProtocolError)
		})
	}
}

// The connection stays open when a client cancels a query.
func TestDoQCancelledQuery(t *testing.T) {
	s := start(t, "")
	conn := s.Client().Connect(t, s.doq, "doq")
	stream, err := conn.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	stream.CancelWrite(3) // DOQ_REQUEST_CANCELLED
	if answer := servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA))); len(answer.Answer) != 1 {
		t.Errorf("answer %v", answer)
	}
}

func TestDoQRefusesUnidirectionalStreams(t *testing.T) {
	s := start(t, "")
	conn := s.Client().Connect(t, s.doq, "doq")
	<-conn.HandshakeComplete()
	if _, err := conn.OpenUniStream(); err == nil {
		t.Error("the server lets clients open unidirectional streams")
	}
}
