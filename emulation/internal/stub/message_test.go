package stub

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func TestQueryForTheUpstream(t *testing.T) {
	client := question("WWW.example.org", dns.TypeHTTPS)
	client.Id, client.CheckingDisabled, client.AuthenticatedData = 4711, true, true
	client.SetEdns0(4096, true)
	client.IsEdns0().Option = []dns.EDNS0{
		&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "24a5ac1223344556"},
		&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 0, Address: []byte{0, 0, 0, 0}},
		&dns.EDNS0_TCP_KEEPALIVE{Code: dns.EDNS0TCPKEEPALIVE},
		&dns.EDNS0_PADDING{Padding: make([]byte, 31)},
	}
	for _, p := range []protocol{doUDP, doTCP, doT, doH, doH3, doQ} {
		wire, err := upstreamQuery(client, p)
		if err != nil {
			t.Fatal(err)
		}
		m := new(dns.Msg)
		if err := m.Unpack(wire); err != nil {
			t.Fatal(err)
		}
		opt := m.IsEdns0()
		if m.Id != 0 || !m.RecursionDesired || !m.CheckingDisabled || !m.AuthenticatedData || m.Question[0] != client.Question[0] ||
			!opt.Do() || opt.UDPSize() != udpPayloadBytes {
			t.Errorf("%s: %v", p, m)
		}
		var options []uint16
		for _, option := range opt.Option {
			options = append(options, option.Option())
		}
		wanted := []uint16{dns.EDNS0SUBNET}
		if p.encrypted() {
			wanted = append(wanted, dns.EDNS0PADDING)
		}
		if !slices.Equal(options, wanted) || p.encrypted() && len(wire) != paddingBlock {
			t.Errorf("%s: options %v in %d bytes", p, options, len(wire))
		}
	}
}

func TestPaddingAtEveryLength(t *testing.T) {
	for n := range 180 {
		name := strings.Repeat("a.", 1+n/2) + strings.Repeat("b", 1+n%2) + ".example.org"
		wire, err := upstreamQuery(question(name, dns.TypeA), doQ)
		if err != nil {
			t.Fatal(err)
		}
		if len(wire)%paddingBlock != 0 || len(wire) > len(name)+2+32+paddingBlock {
			t.Errorf("name of %d bytes: query of %d", len(name), len(wire))
		}
	}
}

func TestAnswerForTheClient(t *testing.T) {
	asked := question("WWW.example.org", dns.TypeA)
	upstream := func() *dns.Msg {
		m := answerTo(t, pack(t, question("www.example.org", dns.TypeA)))
		m.Id, m.AuthenticatedData, m.RecursionAvailable = 0, true, true
		m.SetEdns0(1232, true)
		m.IsEdns0().Option = []dns.EDNS0{
			&dns.EDNS0_PADDING{Padding: make([]byte, 300)},
			&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeStaleAnswer},
			&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "24a5ac1223344556"},
		}
		return m
	}
	plain := clientAnswer(asked, upstream())
	if plain.Id != asked.Id || plain.Question[0] != asked.Question[0] || plain.IsEdns0() != nil || !plain.AuthenticatedData ||
		!plain.RecursionAvailable || !plain.RecursionDesired || len(plain.Answer) != 1 {
		t.Errorf("without EDNS: %v", plain)
	}
	asked.SetEdns0(512, false)
	opt := clientAnswer(asked, upstream()).IsEdns0()
	if opt == nil || opt.Do() || len(opt.Option) != 1 || opt.Option[0].Option() != dns.EDNS0EDE {
		t.Errorf("with EDNS: %v", opt)
	}
	extended := upstream()
	extended.Rcode = dns.RcodeBadCookie
	if code := clientAnswer(asked, extended).Rcode; code != dns.RcodeBadCookie {
		t.Errorf("extended code with EDNS: %d", code)
	}
	extended = upstream()
	extended.Rcode = dns.RcodeBadCookie
	asked.Extra = nil
	if code := clientAnswer(asked, extended).Rcode; code != dns.RcodeServerFailure {
		t.Errorf("extended code without EDNS: %d", code)
	}
}

func TestFailureTellsWhy(t *testing.T) {
	asked := question("www.example.org", dns.TypeA)
	if m := failure(asked, dns.RcodeServerFailure, "timeout"); m.IsEdns0() != nil || !m.Response || !m.RecursionAvailable {
		t.Errorf("without EDNS: %v", m)
	}
	asked.SetEdns0(1232, false)
	m := failure(asked, dns.RcodeServerFailure, "timeout")
	if text := m.String(); !strings.Contains(text, "EDE: 23 (Network Error): (timeout)") {
		t.Errorf("with EDNS: %s", text)
	}
}

// FuzzAnswer: every message of an upstream is an answer or an error. A truncated answer does not exceed the client's limit.
func FuzzAnswer(f *testing.F) {
	asked := question("www.example.org", dns.TypeA)
	asked.Id = 0
	m := new(dns.Msg).SetReply(asked)
	m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "www.example.org.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: []byte{192, 0, 2, 1}}}
	wire, _ := m.Pack()
	f.Add(wire)
	f.Add(wire[:20])
	f.Add(bytes.Repeat([]byte{0xc0}, 40))
	f.Fuzz(func(t *testing.T, wire []byte) {
		answer, err := checkAnswer(wire, 0, asked.Question[0])
		if (answer == nil) == (err == nil) {
			t.Fatalf("answer %v and error %v", answer, err)
		}
		if answer != nil {
			reply := clientAnswer(asked, answer)
			reply.Truncate(dns.MinMsgSize)
			if packed, err := reply.Pack(); err == nil && len(packed) > dns.MinMsgSize {
				t.Errorf("%d bytes", len(packed))
			}
		}
	})
}
