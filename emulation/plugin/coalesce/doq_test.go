package coalesce

import (
	"strings"
	"testing"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/miekg/dns"
)

func TestDoQAnswers(t *testing.T) {
	s := start(t, nil, "")
	conn := s.Client().Connect(t, s.addresses["doq/udp"], "doq")
	for _, c := range []struct {
		name  string
		kind  uint16
		rcode int
	}{
		{testHost, dns.TypeA, dns.RcodeSuccess},
		{testHost, dns.TypeHTTPS, dns.RcodeSuccess},
		{"nowhere.example.net", dns.TypeA, dns.RcodeNameError},
	} {
		answer := servertest.Receive(t, servertest.Send(t, conn, servertest.Question(c.name, c.kind)))
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

// Answers over DoQ are not truncated to the client's UDP payload size.
func TestDoQDoesNotTruncate(t *testing.T) {
	s := start(t, nil, "")
	conn := s.Client().Connect(t, s.addresses["doq/udp"], "doq")
	answer := servertest.Receive(t, servertest.Send(t, conn, servertest.Question("long.example.org", dns.TypeTXT)))
	if answer.Truncated || len(answer.Answer) != 1 || answer.Len() < 4000 {
		t.Errorf("%d bytes, truncated: %v", answer.Len(), answer.Truncated)
	}
}
