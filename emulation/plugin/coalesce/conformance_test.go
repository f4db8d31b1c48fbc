package coalesce

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go/http3"
)

// startWith runs a server like start, with these plugins in place of acknowledge (which answers NOTIFY), and without pages.
func startWith(t *testing.T, plugins string) *running {
	t.Helper()
	s := &running{Folder: servertest.NewFolder(t), t: t, addresses: map[string]string{}}
	s.Start(strings.NewReplacer("acknowledge\n", plugins, "\t\tpages "+s.Path("sites")+"\n", "").Replace(s.block(nil)))
	s.connect()
	return s
}

// everyListener returns a function for each listener. It sends a request over a connection that all calls share and returns
// the answer.
func everyListener(t *testing.T, s *running) map[string]func(*dns.Msg) *dns.Msg {
	t.Helper()
	client := s.Client()
	stream := func(network, address string) func(*dns.Msg) *dns.Msg {
		var conn *dns.Conn
		var err error
		if network == "tcp-tls" {
			conn, err = dns.DialTimeoutWithTLS(network, address, client.Config(), 5*time.Second)
		} else {
			conn, err = dns.DialTimeout(network, address, 5*time.Second)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return func(m *dns.Msg) *dns.Msg {
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			if err := conn.WriteMsg(m); err != nil {
				t.Error(err)
			}
			answer, err := conn.ReadMsg()
			if err != nil {
				t.Error(network, err)
				return new(dns.Msg)
			}
			return answer
		}
	}
	overHTTP := func(transport http.RoundTripper) func(*dns.Msg) *dns.Msg {
		return func(m *dns.Msg) *dns.Msg {
			response, err := transport.RoundTrip(dohRequest(t, http.MethodPost, m))
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			answer := new(dns.Msg)
			if err != nil || response.StatusCode != http.StatusOK || answer.Unpack(body) != nil {
				t.Errorf("%T: status %d, %v", transport, response.StatusCode, err)
			}
			return answer
		}
	}
	h3 := client.H3Transport(s.addresses["h3/udp"], false)
	t.Cleanup(func() { h3.Close() })
	doq := client.Connect(t, s.addresses["doq/udp"], "doq")
	udp, tcp, dot := dnsAddresses(t, s)
	return map[string]func(*dns.Msg) *dns.Msg{
		"udp": stream("udp", udp), "tcp": stream("tcp", tcp), "dot": stream("tcp-tls", dot),
		"https": overHTTP(client.H2Transport(s.addresses["https/tcp"])), "h3": overHTTP(h3),
		"doq": func(m *dns.Msg) *dns.Msg { return servertest.Receive(t, servertest.Send(t, doq, m)) },
	}
}

// dnsAddresses returns the addresses of CoreDNS's own listeners.
func dnsAddresses(t *testing.T, s *running) (udp, tcp, dot string) {
	t.Helper()
	var ready struct{ Listeners []listening }
	s.command(`{"command": "ready"}`, &ready)
	for _, l := range ready.Listeners {
		if l.Listener != "dns" {
			continue
		}
		if l.Network == "udp" {
			udp = l.Address
			continue
		}
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 300 * time.Millisecond}, "tcp", l.Address, s.Client().Config())
		if err != nil {
			tcp = l.Address
			continue
		}
		conn.Close()
		dot = l.Address
	}
	return udp, tcp, dot
}

// RFC 1035, section 4.1.1: every listener answers other opcodes with NOTIMP. The connection stays open.
func TestOtherOpcodesAreNotImplemented(t *testing.T) {
	s := startWith(t, "")
	for name, exchange := range everyListener(t, s) {
		for _, opcode := range []int{dns.OpcodeUpdate, dns.OpcodeStatus, dns.OpcodeNotify} {
			query := servertest.Question(testHost, dns.TypeSOA)
			query.Opcode = opcode
			if answer := exchange(query); answer.Rcode != dns.RcodeNotImplemented || answer.Opcode != opcode || !answer.Response {
				t.Errorf("%s, opcode %d: %v", name, opcode, answer)
			}
		}
		if answer := exchange(servertest.Question(testHost, dns.TypeA)); len(answer.Answer) != 1 {
			t.Errorf("%s, after them: %v", name, answer)
		}
	}
}

// RFC 6891, section 6.1.4: the reserved flags of EDNS are zero in every answer; DO is copied.
func TestReservedFlagsAreCleared(t *testing.T) {
	s := start(t, nil, "")
	for name, exchange := range everyListener(t, s) {
		for _, padded := range []bool{true, false} {
			query := servertest.Question(testHost, dns.TypeA).SetEdns0(1232, true)
			if padded {
				query = servertest.Padded(servertest.Question(testHost, dns.TypeA))
				query.IsEdns0().SetDo()
			}
			query.IsEdns0().Hdr.Ttl |= 1<<15 - 1
			answer := exchange(query)
			if opt := answer.IsEdns0(); opt == nil || opt.Hdr.Ttl&0xffff != 1<<15 {
				t.Errorf("%s: %v", name, answer)
			}
		}
	}
}

// RFC 8945: answers of every listener to signed queries have a valid signature.
func TestAnswersAreSigned(t *testing.T) {
	const key, secret = "key.example.", "c2VjcmV0IHNlY3JldCBzZWNyZXQ="
	s := startWith(t, "tsig {\n secret "+key+" "+secret+"\n require all\n}\n")
	udp, tcp, dot := dnsAddresses(t, s)
	for network, address := range map[string]string{"udp": udp, "tcp": tcp, "tcp-tls": dot} {
		for name, query := range map[string]*dns.Msg{
			"plain": servertest.Question(testHost, dns.TypeA), "with EDNS": servertest.Question(testHost, dns.TypeA).SetEdns0(1232, false),
			"padded": servertest.Padded(servertest.Question(testHost, dns.TypeA)), "long": servertest.Question("long.example.org", dns.TypeTXT).SetEdns0(8192, false),
			"no such name": servertest.Question("nowhere.example.org", dns.TypeA),
		} {
			client := &dns.Client{Net: network, TLSConfig: s.Client().Config(), TsigSecret: map[string]string{key: secret}, Timeout: 5 * time.Second}
			query = query.Copy()
			query.Id = dns.Id()
			query.SetTsig(key, dns.HmacSHA256, 300, time.Now().Unix())
			answer, _, err := client.Exchange(query, address) // verifies the signature
			if err != nil || answer.IsTsig() == nil {
				t.Errorf("%s, %s: %v\n%v", network, name, err, answer)
			}
		}
	}
}

// Cancelled requests for pages and DNS leave no open streams on their HTTP/2 or HTTP/3 connection.
func TestCancelledRequestsEnd(t *testing.T) {
	s := start(t, nil, "")
	for name, transport := range httpTransports(s) {
		for _, path := range []string{"/", "/dns-query"} {
			for range 2 * maxStreamsOfOne {
				ctx, cancel := context.WithCancel(t.Context())
				r := request(t, http.MethodGet, path)
				if path != "/" {
					r = dohRequest(t, http.MethodGet, servertest.Question("long.example.org", dns.TypeTXT))
				}
				response, err := transport.RoundTrip(r.WithContext(ctx))
				if err == nil {
					response.Body.Close() // unread
				}
				cancel()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			response, err := transport.RoundTrip(request(t, http.MethodGet, "/").WithContext(ctx))
			if err != nil {
				t.Fatalf("%s %s: %v", name, path, err)
			}
			if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("%s %s: %d %q %v", name, path, response.StatusCode, body, err)
			}
			cancel()
		}
	}
	connections := s.events("connection")
	byListener := func(name string) int {
		n := 0
		for _, event := range connections {
			if event["listener"] == name {
				n++
			}
		}
		return n
	}
	if byListener(listenerH3) != 1 || byListener(listenerHTTPS) != 1 {
		t.Errorf("%v", connections)
	}
}

// Streams that a client stops right after the request end too.
func TestStoppedStreamsOfHTTP3End(t *testing.T) {
	s := start(t, nil, "")
	conn := s.Client().Connect(t, s.addresses["h3/udp"], http3.NextProtoH3)
	requests := new(http3.Transport).NewClientConn(conn)
	for range 2 * maxStreamsOfOne {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		stream, err := requests.OpenRequestStream(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendRequestHeader(request(t, http.MethodGet, "/")); err != nil {
			t.Fatal(err)
		}
		_ = stream.Close()
		stream.CancelRead(0x10c) // H3_REQUEST_CANCELLED
	}
	response, err := requests.RoundTrip(request(t, http.MethodGet, "/"))
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", response, err)
	}
}
