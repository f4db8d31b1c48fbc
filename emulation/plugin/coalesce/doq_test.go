package coalesce

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// send opens a stream and sends a message as DoQ does.
func send(t *testing.T, conn *quic.Conn, m *dns.Msg) *quic.Stream {
	t.Helper()
	wire, err := packWithLength(m)
	if err != nil {
		t.Fatal(err)
	}
	return sendRaw(t, conn, wire)
}

func sendRaw(t *testing.T, conn *quic.Conn, wire []byte) *quic.Stream {
	t.Helper()
	stream, err := conn.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Write(wire); err != nil {
		t.Fatal(err)
	}
	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
	_ = stream.SetReadDeadline(time.Now().Add(5 * time.Second))
	return stream
}

// receive reads the one answer of a stream to its end.
func receive(t *testing.T, stream *quic.Stream) *dns.Msg {
	t.Helper()
	wire, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	if len(wire) < 2 || int(binary.BigEndian.Uint16(wire)) != len(wire)-2 {
		t.Fatalf("%d bytes with a wrong length in front", len(wire))
	}
	m := new(dns.Msg)
	if err := m.Unpack(wire[2:]); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDoQAnswers(t *testing.T) {
	s := start(t, nil, "")
	conn := s.client().dial(t, s.addresses["doq/udp"], "doq")
	for _, c := range []struct {
		name  string
		kind  uint16
		rcode int
	}{
		{testHost, dns.TypeA, dns.RcodeSuccess},
		{testHost, dns.TypeHTTPS, dns.RcodeSuccess},
		{"nowhere.example.net", dns.TypeA, dns.RcodeNameError},
	} {
		answer := receive(t, send(t, conn, question(c.name, c.kind)))
		if answer.Rcode != c.rcode || answer.Id != 0 || !answer.Response {
			t.Errorf("%s: %v", c.name, answer)
		}
		event := s.lastEvent("query")
		if event["name"] != c.name+"." || event["rcode"] != dns.RcodeToString[c.rcode] || event["listener"] != "doq" ||
			event["type"] != dns.TypeToString[c.kind] || event["handshake_complete"] != true || event["resumed"] != false {
			t.Errorf("event %v", event)
		}
	}
	events := s.events("connection")
	if len(events) != 1 || events[0]["alpn"] != "doq" || events[0]["server_name"] != testHost || events[0]["quic_version"] != "v1" ||
		events[0]["tls_version"] != "TLSv1.3" || events[0]["error"] != "" || events[0]["local"] != s.addresses["doq/udp"] ||
		events[0]["remote"] != conn.LocalAddr().String() && !strings.HasSuffix(events[0]["remote"].(string), portOf(conn.LocalAddr().String())) {
		t.Errorf("connection events %v", events)
	}
}

func portOf(address string) string { return address[strings.LastIndex(address, ":"):] }

// An answer longer than a datagram is whole: nothing is cut to the size of the client's UDP buffer.
func TestDoQDoesNotTruncate(t *testing.T) {
	s := start(t, nil, "")
	conn := s.client().dial(t, s.addresses["doq/udp"], "doq")
	answer := receive(t, send(t, conn, question("long.example.org", dns.TypeTXT)))
	if answer.Truncated || len(answer.Answer) != 1 || answer.Len() < 4000 {
		t.Errorf("%d bytes, truncated: %v", answer.Len(), answer.Truncated)
	}
}

func TestDoQProtocolErrors(t *testing.T) {
	s := start(t, nil, "")
	pack := func(change func(*dns.Msg)) []byte {
		m := question(testHost, dns.TypeA)
		change(m)
		wire, err := packWithLength(m)
		if err != nil {
			t.Fatal(err)
		}
		return wire
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
			conn := s.client().dial(t, s.addresses["doq/udp"], "doq")
			sendRaw(t, conn, wire)
			select {
			case <-conn.Context().Done():
			case <-time.After(5 * time.Second):
				t.Fatal("the connection stays open")
			}
			var closed *quic.ApplicationError
			if err := context.Cause(conn.Context()); !errors.As(err, &closed) || closed.ErrorCode != doqProtocolError || !closed.Remote {
				t.Errorf("closed with %v", err)
			}
		})
	}
}

// A client that gives up one query keeps its connection.
func TestDoQCancelledQuery(t *testing.T) {
	s := start(t, nil, "")
	conn := s.client().dial(t, s.addresses["doq/udp"], "doq")
	stream, err := conn.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	stream.CancelWrite(3) // DOQ_REQUEST_CANCELLED
	if answer := receive(t, send(t, conn, question(testHost, dns.TypeA))); len(answer.Answer) != 1 {
		t.Errorf("answer %v", answer)
	}
}

func TestDoQRefusesUnidirectionalStreams(t *testing.T) {
	s := start(t, nil, "")
	conn := s.client().dial(t, s.addresses["doq/udp"], "doq")
	<-conn.HandshakeComplete()
	if _, err := conn.OpenUniStream(); err == nil {
		t.Error("the server lets clients open unidirectional streams")
	}
}
