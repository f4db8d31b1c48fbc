package coalesce

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/servertest"
	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"
)

// httpTransports returns the transports of HTTP/3 and HTTP/2, by listener.
func httpTransports(s *running) map[string]http.RoundTripper {
	c := s.Client()
	return map[string]http.RoundTripper{
		listenerH3:    c.H3Transport(s.addresses["h3/udp"], false),
		listenerHTTPS: c.H2Transport(s.addresses["https/tcp"]),
	}
}

func TestPages(t *testing.T) {
	s := start(t, nil, "")
	for listener, transport := range httpTransports(s) {
		for _, c := range []struct {
			method, url string
			status      int
			body        string
		}{
			{"GET", "https://www.example.org/", 200, "gzipped, so to speak"},
			{"GET", "https://WWW.example.org./?query", 200, "gzipped, so to speak"},
			{"GET", "https://alias.example.org/", 200, "gzipped, so to speak"},
			{"GET", "https://cdn.example.org/elsewhere", 200, "gzipped, so to speak"},
			{"HEAD", "https://www.example.org/", 200, ""},
			{"GET", "https://www.example.org/elsewhere", 404, "not found\n"},
			{"GET", "https://other.example.net/", 421, "misdirected request\n"},
			{"POST", "https://www.example.org/", 405, "method not allowed\n"},
			{"GET", "https://www.example.org/dns-query", 400, "bad request\n"},
		} {
			r, err := http.NewRequest(c.method, c.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatalf("%s: %s %s: %v", listener, c.method, c.url, err)
			}
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != c.status || string(body) != c.body {
				t.Errorf("%s: %s %s: %d %q %v", listener, c.method, c.url, response.StatusCode, body, err)
			}
			if response.Header.Get("Cache-Control") != "no-store" || response.Header.Get("Timing-Allow-Origin") != "*" ||
				response.ContentLength != int64(len(body)) && c.method != "HEAD" || response.ContentLength < 0 {
				t.Errorf("%s: %s %s: header %v, length %d", listener, c.method, c.url, response.Header, response.ContentLength)
			}
			if gzip := response.Header.Get("Content-Encoding") == "gzip"; gzip != (c.status == 200 && !strings.Contains(c.url, "cdn")) {
				t.Errorf("%s: %s %s: gzip %v", listener, c.method, c.url, gzip)
			}
			// When the client has the whole response, its event is written.
			event := s.lastEvent("request")
			if event["listener"] != listener || event["method"] != c.method || event["path"] != r.URL.Path || event["host"] != r.URL.Host ||
				event["status"] != float64(c.status) || event["bytes"] != float64(len(c.body)) || event["handshake_complete"] != true ||
				event["done"].(float64) < event["time"].(float64) || event["server_name"] != testHost {
				t.Errorf("event %v", event)
			}
		}
		if event := s.lastEvent("connection"); event["listener"] != listener || event["alpn"] != map[string]string{"h3": "h3", "https": "h2"}[listener] {
			t.Errorf("event %v", event)
		}
	}
}

func TestPathsWithEscapes(t *testing.T) {
	s := start(t, nil, "")
	for listener, transport := range httpTransports(s) {
		for path, c := range map[string]struct {
			normal string
			status int
		}{
			"/a%20b%2fc%27": {"/a%20b%2Fc%27", 200},
			"/a%20b%2Fc'":   {"/a%20b%2Fc%27", 200},
			"/a%20b/c'":     {"/a%20b/c%27", 404},
		} {
			r, err := http.NewRequest("GET", "https://cdn.example.org"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatalf("%s: %s: %v", listener, path, err)
			}
			if _, err := io.ReadAll(response.Body); err != nil || response.StatusCode != c.status {
				t.Errorf("%s: %s: %d %v", listener, path, response.StatusCode, err)
			}
			if event := s.lastEvent("request"); event["path"] != c.normal {
				t.Errorf("%s: %s: event %v", listener, path, event)
			}
		}
	}
}

func TestDNSOverHTTP(t *testing.T) {
	s := start(t, nil, "")
	for listener, transport := range httpTransports(s) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			for _, name := range []string{testHost, "long.example.org"} {
				kind := dns.TypeA
				if name != testHost {
					kind = dns.TypeTXT
				}
				response, err := transport.RoundTrip(dohRequest(t, method, servertest.Padded(servertest.Question(name, kind))))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				answer := new(dns.Msg)
				if err := answer.Unpack(body); err != nil || len(answer.Answer) != 1 || answer.Truncated || len(body)%early.PaddingBlock != 0 {
					t.Errorf("%s %s: %d bytes, %v: %v", listener, method, len(body), err, answer)
				}
				if response.Header.Get("Cache-Control") != "max-age=300" || response.Header.Get("Content-Type") != "application/dns-message" {
					t.Errorf("%s %s: header %v", listener, method, response.Header)
				}
				if event := s.lastEvent("query"); event["listener"] != map[string]string{"h3": "doh3", "https": "doh"}[listener] || event["name"] != name+"." {
					t.Errorf("event %v", event)
				}
			}
		}
	}
}

// DNS errors have HTTP status 200 (RFC 8484, section 4.2.1).
func TestDNSOverHTTPOfWhatIsNotThere(t *testing.T) {
	s := start(t, nil, "")
	for listener, transport := range httpTransports(s) {
		refused := servertest.Question(testHost, dns.TypeA)
		refused.Question[0].Qclass = dns.ClassCHAOS
		for rcode, query := range map[int]*dns.Msg{
			dns.RcodeNameError: servertest.Question("nowhere.example.org", dns.TypeA), dns.RcodeRefused: refused,
		} {
			response, err := transport.RoundTrip(dohRequest(t, http.MethodGet, query))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			answer := new(dns.Msg)
			if err := answer.Unpack(body); err != nil || answer.Rcode != rcode || response.StatusCode != http.StatusOK {
				t.Errorf("%s: status %d, %v, %v", listener, response.StatusCode, err, answer)
			}
		}
	}
}

// Other methods and media types have specific status codes (RFC 9110, sections 15.5.6 and 15.5.16).
func TestDNSOverHTTPRefuses(t *testing.T) {
	s := start(t, nil, "")
	for listener, transport := range httpTransports(s) {
		for _, c := range []struct {
			method, kind string
			status       int
		}{
			{http.MethodPost, "text/plain", 415}, {http.MethodPost, "", 415}, {http.MethodPost, "application/dns-message", 400},
			{http.MethodPut, "application/dns-message", 405}, {http.MethodDelete, "", 405}, {http.MethodHead, "", 405},
		} {
			r, err := http.NewRequest(c.method, "https://"+testHost+"/dns-query", strings.NewReader("?"))
			if err != nil {
				t.Fatal(err)
			}
			if c.method == http.MethodHead {
				r.Body, r.ContentLength = nil, 0
			}
			r.Header.Set("Content-Type", c.kind)
			response, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != c.status || c.status == 405 && response.Header.Get("Allow") != "GET, POST" {
				t.Errorf("%s: %s %q: %d %v", listener, c.method, c.kind, response.StatusCode, response.Header)
			}
		}
	}
}

// Negative answers are cached no longer than the MINIMUM of the SOA record (RFC 2308, section 5).
func TestFreshness(t *testing.T) {
	soa := func(ttl, minimum uint32) *dns.SOA {
		return &dns.SOA{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: ttl}, Minttl: minimum}
	}
	query := servertest.Question(testHost, dns.TypeA)
	for _, c := range []struct {
		rcode        int
		ttl, minimum uint32
		want         time.Duration
	}{
		{dns.RcodeNameError, 3600, 60, time.Minute}, {dns.RcodeSuccess, 3600, 60, time.Minute}, {dns.RcodeNameError, 30, 60, 30 * time.Second},
	} {
		answer := new(dns.Msg).SetRcode(query, c.rcode)
		answer.Ns = []dns.RR{soa(c.ttl, c.minimum)}
		if got := freshness(answer); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// Queries of CoreDNS's own listeners are reported too. Answers of its encrypted listeners are padded.
func TestOwnListenersOfCoreDNS(t *testing.T) {
	s := start(t, nil, bare)
	for listener, c := range map[string]struct {
		network string
		address string
	}{
		"udp": {"udp", s.addresses["dns/udp"]},
		"dot": {"tcp-tls", s.dotAddress()},
	} {
		exchange := dns.Client{Net: c.network, TLSConfig: s.Client().Config(), Timeout: 5 * time.Second}
		answer, _, err := exchange.Exchange(servertest.Padded(servertest.Question(testHost, dns.TypeA)), c.address)
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Answer) != 1 || (answer.Len() == early.PaddingBlock) != (listener == "dot") {
			t.Errorf("%s: %v", listener, answer)
		}
		if event := s.lastEvent("query"); event["listener"] != listener {
			t.Errorf("event %v", event)
		}
	}
	if event := s.lastEvent("connection"); event["listener"] != "dot" || event["tls_version"] != "TLSv1.3" || event["local"] != s.dotAddress() {
		t.Errorf("event %v", event)
	}
}

// EDNS on CoreDNS's own listeners (RFC 6891, sections 6.1.1 and 7).
func TestEDNSOnOwnListenersOfCoreDNS(t *testing.T) {
	s := start(t, nil, bare)
	two := servertest.Question(testHost, dns.TypeA).SetEdns0(1232, false)
	two.Extra = append(two.Extra, two.Extra[0])
	for network, address := range map[string]string{"udp": s.addresses["dns/udp"], "tcp-tls": s.dotAddress()} {
		exchange := dns.Client{Net: network, TLSConfig: s.Client().Config(), Timeout: 5 * time.Second}
		if answer, _, err := exchange.Exchange(two, address); err != nil || answer.Rcode != dns.RcodeFormatError {
			t.Errorf("%s, two OPT records: %v, %v", network, err, answer)
		}
	}
	careless := plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		return dns.RcodeSuccess, w.WriteMsg(new(dns.Msg).SetReply(r).SetEdns0(1232, false))
	})
	w := new(lastMessage)
	_, err := Coalesce{Next: careless, shared: &shared{events: newEventLog()}}.ServeDNS(t.Context(), w, servertest.Question(testHost, dns.TypeA))
	if err != nil || len(w.written) != 1 || w.written[0].IsEdns0() != nil {
		t.Errorf("OPT for a query without: %v, %v", err, w.written)
	}
}

// dotAddress returns the address of the DoT listener of the server block bare, the only one on 127.0.0.2.
func (s *running) dotAddress() string {
	s.t.Helper()
	var ready struct{ Listeners []listening }
	s.command(`{"command": "ready"}`, &ready)
	for _, l := range ready.Listeners {
		if strings.HasPrefix(l.Address, "127.0.0.2:") {
			return l.Address
		}
	}
	s.t.Fatal("no DoT listener")
	return ""
}
