package early

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/coredns/caddy"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// exchange sends a query over a new DoQ connection and returns the answer.
func (s *running) exchange(t *testing.T, query *dns.Msg) *dns.Msg {
	t.Helper()
	return servertest.Receive(t, servertest.Send(t, s.Client().Connect(t, s.doq, DoQ), query))
}

// RFC 9250, section 5.5.2; RFC 8467, section 3; RFC 6891, sections 6.1.1 and 7; RFC 7830, section 4.
func TestEDNS(t *testing.T) {
	s := start(t, "")
	careless := servertest.Padded(servertest.Question("careless.example.org", dns.TypeA))
	answer := s.exchange(t, careless)
	if HasOption(answer, dns.EDNS0TCPKEEPALIVE) || len(answer.IsEdns0().Option) != 1 || answer.Len() != PaddingBlock {
		t.Errorf("keepalive, or padded twice: %v", answer)
	}
	if answer := s.exchange(t, servertest.Question("careless.example.org", dns.TypeA)); answer.IsEdns0() != nil {
		t.Errorf("OPT for a query without: %v", answer)
	}
	old := servertest.Padded(servertest.Question(testHost, dns.TypeA))
	old.IsEdns0().SetVersion(1)
	if answer := s.exchange(t, old); answer.Rcode != dns.RcodeBadVers || answer.Len() != PaddingBlock {
		t.Errorf("BADVERS: %d bytes, %v", answer.Len(), answer)
	}
	chaos := servertest.Padded(servertest.Question(testHost, dns.TypeA))
	chaos.Question[0].Qclass = dns.ClassCHAOS
	if answer := s.exchange(t, chaos); answer.Rcode != dns.RcodeRefused || answer.Len() != PaddingBlock {
		t.Errorf("class CH: %d bytes, %v", answer.Len(), answer)
	}
	two := servertest.Padded(servertest.Question(testHost, dns.TypeA))
	two.Extra = append(two.Extra, two.Extra[0])
	if answer := s.exchange(t, two); answer.Rcode != dns.RcodeFormatError {
		t.Errorf("two OPT records: %v", answer)
	}
}

// RFC 9250, section 4.3.1: a query that is reset before its end is cancelled, and its answer is reset.
func TestCancelledQuery(t *testing.T) {
	s := start(t, "")
	before := cancelled.Load()
	conn := s.Client().Connect(t, s.doq, DoQ)
	stream, err := conn.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Write(servertest.Framed(t, servertest.Question("slow.example.org", dns.TypeA))); err != nil {
		t.Fatal(err)
	}
	servertest.Eventually(t, "the query", func() bool { return asked("slow.example.org.").Load() > 0 })
	stream.CancelWrite(DoQRequestCancelled)
	_ = stream.SetReadDeadline(time.Now().Add(4 * time.Second))
	var reset *quic.StreamError
	if _, err := stream.Read(make([]byte, 1)); !errors.As(err, &reset) || reset.ErrorCode != DoQRequestCancelled {
		t.Errorf("the answer's side: %v", err)
	}
	servertest.Eventually(t, "the plugins to learn of it", func() bool { return cancelled.Load() > before })
	servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA)))
}

// RFC 9250, sections 4.2 and 5.6: a slow query does not delay the answers to others.
func TestAnswersAreInParallel(t *testing.T) {
	s := start(t, "")
	conn := s.Client().Connect(t, s.doq, DoQ)
	before := asked("slow.example.org.").Load()
	slow := servertest.Send(t, conn, servertest.Question("slow.example.org", dns.TypeA))
	servertest.Eventually(t, "the slow query", func() bool { return asked("slow.example.org.").Load() > before })
	if answer := servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA))); len(answer.Answer) != 1 {
		t.Errorf("answer %v", answer)
	}
	gone := cancelled.Load()
	slow.CancelRead(DoQRequestCancelled)
	servertest.Eventually(t, "the plugins to learn of it", func() bool { return cancelled.Load() > gone })
}

// RFC 9250, section 4.3.2: the stream of a query without an answer is reset, and the connection stays open.
func TestNoAnswerIsAReset(t *testing.T) {
	s := start(t, "")
	conn := s.Client().Connect(t, s.doq, DoQ)
	var reset *quic.StreamError
	stream := servertest.Send(t, conn, servertest.Question("silent.example.org", dns.TypeA))
	if _, err := stream.Read(make([]byte, 1)); !errors.As(err, &reset) || reset.ErrorCode != DoQInternalError {
		t.Errorf("no answer: %v", err)
	}
	servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA)))
}

// withOpcode returns a padded request with an opcode. UPDATE has records, and DSO has no question.
func withOpcode(opcode int) *dns.Msg {
	m := servertest.Padded(servertest.Question(testHost, dns.TypeSOA))
	m.Opcode = opcode
	switch opcode {
	case dns.OpcodeUpdate:
		header := dns.RR_Header{Name: testHost + ".", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}
		m.Ns = []dns.RR{&dns.A{Hdr: header, A: net.IPv4(192, 0, 2, 7)}, &dns.A{Hdr: header, A: net.IPv4(192, 0, 2, 8)}}
	case dns.OpcodeStateful:
		m.Question = nil
	}
	return m
}

// RFC 1035, section 4.1.1: a request with another opcode is answered with NOTIMP on its stream. The connection stays open.
func TestOtherOpcodesAreNotImplemented(t *testing.T) {
	f := servertest.NewFolder(t)
	s := &running{Folder: f}
	s.instance = f.Start(strings.Replace(corefile(""), "acknowledge\n", "", 1)) // no plugin answers NOTIFY
	s.doq = listening(s.instance)[0].String()
	conn := s.Client().Connect(t, s.doq, DoQ)
	for _, opcode := range []int{dns.OpcodeIQuery, dns.OpcodeStatus, dns.OpcodeNotify, dns.OpcodeUpdate, dns.OpcodeStateful, 15} {
		query := withOpcode(opcode)
		answer := servertest.Receive(t, servertest.Send(t, conn, query))
		if answer.Rcode != dns.RcodeNotImplemented || answer.Opcode != opcode || !answer.Response || len(answer.Question) != len(query.Question) ||
			answer.Len() != PaddingBlock {
			t.Errorf("opcode %d: %d bytes, %v", opcode, answer.Len(), answer)
		}
	}
	headerOnly := []byte{0, 12, 0, 0, dns.OpcodeUpdate << 3, 0, 0, 1, 0, 0, 0, 0, 0, 0} // announces a question but has none
	if answer := servertest.Receive(t, servertest.SendRaw(t, conn, headerOnly)); answer.Rcode != dns.RcodeNotImplemented {
		t.Errorf("a malformed UPDATE: %v", answer)
	}
	if answer := servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA))); len(answer.Answer) != 1 {
		t.Errorf("after them: %v", answer)
	}
}

// RFC 9250, section 4.3.1: a client may stop any number of answers. The server must end both directions of these streams,
// because quic-go counts a stream against the connection's limit until then.
func TestStoppedStreamsEnd(t *testing.T) {
	s := start(t, "")
	for name, query := range map[string]*dns.Msg{
		"before the answer":             servertest.Question("stuck.example.org", dns.TypeA), // its plugin ignores the context
		"while the plugins work":        servertest.Question("slow.example.org", dns.TypeA),
		"at the moment of the answer":   servertest.Question(testHost, dns.TypeA),
		"in the middle of the answer":   servertest.Question("long.example.org", dns.TypeTXT),
		"of a query that has no answer": servertest.Question("silent.example.org", dns.TypeA),
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.Client().Connect(t, s.doq, DoQ)
			for range 150 { // a client may have 100 streams open
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				stream, err := conn.OpenStreamSync(ctx)
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Write(servertest.Framed(t, query)); err != nil {
					t.Fatal(err)
				}
				_ = stream.Close()
				stream.CancelRead(DoQRequestCancelled)
			}
			if answer := servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA))); len(answer.Answer) != 1 {
				t.Errorf("answer %v", answer)
			}
		})
	}
}

// RFC 9250, section 4.3.3; RFC 9000, section 10.2.3: early data that violates the protocol closes the connection with an
// error code of DoQ, which can be sent only after the handshake.
func TestProtocolErrorsOfEarlyData(t *testing.T) {
	s := start(t, "")
	good := servertest.Framed(t, servertest.Question(testHost, dns.TypeA))
	numbered := append([]byte{}, good...)
	numbered[3] = 1
	for name, wire := range map[string][]byte{
		"two queries": append(append([]byte{}, good...), good...), "half a query": good[:len(good)/2], "message ID": numbered, "length 0": {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			client := s.Client()
			client.Warm(t, s.doq, DoQ)
			relay := servertest.NewRelay(t, s.doq, true)
			conn := client.Dial(t, relay.Address(), DoQ)
			servertest.SendRaw(t, conn, wire)
			relay.RequestSent()
			servertest.Eventually(t, "early data from the client", func() bool { return relay.Saw(servertest.EarlyPacket) })
			time.Sleep(soon) // until the server has read it
			relay.Release()
			wantClosed(t, conn, DoQProtocolError)
		})
	}
}

// Early data with another opcode is answered with NOTIMP after the handshake. The connection stays open.
func TestOtherOpcodesAsEarlyData(t *testing.T) {
	s := start(t, "")
	for _, opcode := range []int{dns.OpcodeStatus, dns.OpcodeUpdate, dns.OpcodeStateful} {
		client := s.Client()
		client.Warm(t, s.doq, DoQ)
		relay := servertest.NewRelay(t, s.doq, true)
		conn := client.Dial(t, relay.Address(), DoQ)
		stream := servertest.Send(t, conn, withOpcode(opcode))
		relay.RequestSent()
		servertest.Eventually(t, "early data from the client", func() bool { return relay.Saw(servertest.EarlyPacket) })
		time.Sleep(soon) // until the server has read it
		relay.Release()
		if answer := servertest.Receive(t, stream); answer.Rcode != dns.RcodeNotImplemented || answer.Opcode != opcode {
			t.Errorf("opcode %d: %v", opcode, answer)
		}
		if answer := servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA))); len(answer.Answer) != 1 {
			t.Errorf("after opcode %d: %v", opcode, answer)
		}
	}
}

// wantClosed fails the test unless the server closes the connection with this error code.
func wantClosed(t *testing.T, conn *quic.Conn, code quic.ApplicationErrorCode) {
	t.Helper()
	select {
	case <-conn.Context().Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the connection stays open")
	}
	closed, ok := errors.AsType[*quic.ApplicationError](context.Cause(conn.Context()))
	if !ok || closed.ErrorCode != code || !closed.Remote {
		t.Errorf("closed with %v", context.Cause(conn.Context()))
	}
}

// An excess connection is closed with DOQ_EXCESSIVE_LOAD, also if the client dials without waiting for the handshake.
func TestTooManyConnectionsGetAReason(t *testing.T) {
	s := start(t, "max_connections 2\nmax_share 50")
	s.Client().Connect(t, s.doq, DoQ)
	wantClosed(t, s.Client().Dial(t, s.doq, DoQ), DoQExcessiveLoad)
}

// RFC 9250, section 5.7: all messages of a zone transfer arrive on one stream. RFC 8945: it requires the TSIG key.
func TestZoneTransfer(t *testing.T) {
	const key, secret = "key.example.", "c2VjcmV0IHNlY3JldCBzZWNyZXQ="
	f := servertest.NewFolder(t)
	var zone strings.Builder
	zone.WriteString("$ORIGIN .\n@ 300 IN SOA ns. mail. 1 3600 600 86400 300\n@ 300 IN NS ns.\n")
	for i := range 3000 {
		fmt.Fprintf(&zone, "a-name-that-takes-some-room-%d.example.org. 300 IN A 192.0.2.1\n", i)
	}
	f.Write("zone", zone.String())
	s := &running{Folder: f}
	s.instance = f.Start(strings.Replace(corefile(""), "witness\n", "tsig {\n\t secret "+key+" "+secret+"\n\t require AXFR\n\t}\n\ttransfer {\n\t to *\n\t}\n", 1))
	s.doq = listening(s.instance)[0].String()

	transfer := func(secret string) (records, messages int, rcode int, signed error) {
		query := servertest.Question("", dns.TypeAXFR)
		query.SetTsig(key, dns.HmacSHA256, 300, time.Now().Unix())
		wire, mac, err := dns.TsigGenerate(query, secret, "", false)
		if err != nil {
			t.Fatal(err)
		}
		stream := servertest.SendRaw(t, s.Client().Connect(t, s.doq, DoQ), append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...))
		for {
			var length [2]byte
			if _, err := io.ReadFull(stream, length[:]); err == io.EOF {
				return records, messages, rcode, signed
			} else if err != nil {
				t.Fatal(err)
			}
			wire := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(stream, wire); err != nil {
				t.Fatal(err)
			}
			m := new(dns.Msg)
			if err := m.Unpack(wire); err != nil {
				t.Fatal(err)
			}
			if messages == 0 && m.IsTsig() != nil {
				signed = dns.TsigVerify(wire, secret, mac, false)
			}
			records, messages, rcode = records+len(m.Answer), messages+1, m.Rcode
		}
	}
	if records, messages, rcode, signed := transfer(secret); records != 3003 || messages < 2 || rcode != dns.RcodeSuccess || signed != nil {
		t.Errorf("%d records in %d messages, rcode %d, signature: %v", records, messages, rcode, signed)
	}
	if records, messages, rcode, _ := transfer("d3Jvbmcgd3Jvbmcgd3Jvbmc="); records != 0 || messages != 1 || rcode != dns.RcodeNotAuth {
		t.Errorf("with a wrong secret: %d records in %d messages, rcode %d", records, messages, rcode)
	}
}

// The DoQ listener serves all zones of a server block. Metrics have the listener's own name.
func TestSecondZoneOfABlock(t *testing.T) {
	f := servertest.NewFolder(t)
	f.Write("zone", "$ORIGIN example.net.\n@ 300 IN SOA ns mail 1 3600 600 86400 300\n@ 300 IN A 192.0.2.2\n")
	s := &running{Folder: f}
	s.instance = f.Start(strings.Replace(strings.Replace(corefile(""), ".:0 {", "example.com:0 example.net:0 {", 1), "zone .", "zone example.net", 1))
	s.doq = listening(s.instance)[0].String()
	if answer := s.exchange(t, servertest.Question("example.net", dns.TypeA)); len(answer.Answer) != 1 {
		t.Errorf("second zone: %v", answer)
	}
	answer := s.exchange(t, servertest.Question("server.example.com", dns.TypeTXT))
	if text := answer.Answer[0].(*dns.TXT).Txt[0]; text != "quic://127.0.0.1:0" {
		t.Errorf("known to metrics as %s", text)
	}
}

func TestWhatCannotBeIsRefused(t *testing.T) {
	f := servertest.NewFolder(t)
	block := func(zone, address string) string {
		return zone + ":0 {\n bind 127.0.0.1\n tls cert.pem key.pem\n early {\n doq " + address + "\n }\n}\n"
	}
	for corefile, want := range map[string]string{
		block(".", "127.0.0.1:53"): "port 53 must not be used",
		block("a.example", "127.0.0.1:8853") + block("b.example", "127.0.0.1:8853"): "is opened by another server block",
	} {
		if _, err := caddy.Start(f.Input(corefile)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %q", err, want)
		}
	}
}

// Answers to a cancelled query are not sent.
func TestContextOfAnAnswerEnds(t *testing.T) {
	w := &answerWriter{send: func(*dns.Msg, []byte) error { return nil }}
	var cancel context.CancelFunc
	w.ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if err := w.WriteMsg(servertest.Question(testHost, dns.TypeA)); err == nil || w.sent != 0 {
		t.Error("an answer to a query that was given up")
	}
}
