package coalesce

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go/http3"
)

// The number of TCP connections is limited too. Excess connections are closed at once until another one ends.
func TestConnectionsOverTCPAreLimited(t *testing.T) {
	s := start(t, map[string]string{"max_connections": "4", "max_share": "50"}, "")
	dial := func(from string) *tls.Conn {
		dialer := tls.Dialer{
			NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 5 * time.Second},
			Config:    s.Client().Config("h2"),
		}
		conn, err := dialer.Dial("tcp", s.addresses["https/tcp"])
		if err != nil {
			return nil
		}
		t.Cleanup(func() { conn.Close() })
		return conn.(*tls.Conn)
	}
	first := dial("127.0.0.2")
	if first == nil || dial("127.0.0.2") == nil || dial("127.0.0.2") != nil {
		t.Error("one address gets more or less than its share")
	}
	if dial("127.0.0.3") == nil {
		t.Error("another address gets nothing")
	}
	first.Close()
	servertest.Eventually(t, "room again", func() bool { return dial("127.0.0.2") != nil })
}

// A request whose body does not arrive ends in time over HTTP/1.1, HTTP/2 and HTTP/3. No goroutines remain.
func TestSlowPost(t *testing.T) {
	s := start(t, map[string]string{"read_timeout": "300ms"}, "")
	before := runtime.NumGoroutine()
	post := func(transport http.RoundTripper) {
		body, _ := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+testHost+"/dns-query", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/dns-message")
		began := time.Now()
		response, err := transport.RoundTrip(r)
		if err == nil {
			response.Body.Close()
		}
		if took := time.Since(began); took > 3*time.Second || err == nil && response.StatusCode < 400 {
			t.Errorf("%T: %v, %v after %s", transport, response, err, took)
		}
		if closer, ok := transport.(io.Closer); ok {
			closer.Close()
		} else {
			transport.(*http.Transport).CloseIdleConnections()
		}
	}
	post(s.Client().H3Transport(s.addresses["h3/udp"], false))
	post(s.Client().H2Transport(s.addresses["https/tcp"]))
	http1 := s.Client().H2Transport(s.addresses["https/tcp"])
	http1.ForceAttemptHTTP2 = false
	post(http1)
	servertest.Eventually(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before+10 })
}

// An HTTP/3 stream whose request header does not arrive is reset. The connection stays open.
func TestSlowHeader(t *testing.T) {
	s := start(t, map[string]string{"read_timeout": "300ms"}, "")
	conn := s.Client().Connect(t, s.addresses["h3/udp"], "h3")
	h3 := (&http3.Transport{}).NewClientConn(conn)
	stream, err := conn.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Write([]byte{0x01, 0x40}); err != nil { // a HEADERS frame that ends within its length
		t.Fatal(err)
	}
	_ = stream.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := stream.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "deadline") {
		t.Errorf("the stream stays open: %v", err)
	}
	response, err := h3.RoundTrip(request(t, http.MethodGet, "/"))
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("the connection has suffered: %v, %v", response, err)
	}
}

// A request with too large a header is refused, and the server continues. The size counts uncompressed fields (RFC 9114,
// section 4.2.2).
func TestLargeHeader(t *testing.T) {
	s := start(t, nil, "")
	for name, values := range map[string][]string{
		"one field":     {strings.Repeat("x", 4*maxHeaderBytes)},
		"20,000 fields": slices.Repeat([]string{"*/*"}, 20_000), // a value of Accept that takes one byte in QPACK
	} {
		for listener, transport := range httpTransports(s) {
			large := request(t, http.MethodGet, "/")
			large.Header["Accept"] = values
			response, err := transport.RoundTrip(large)
			if err == nil && response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("%s, %s: status %d", listener, name, response.StatusCode)
			}
			response, err = httpTransports(s)[listener].RoundTrip(request(t, http.MethodGet, "/"))
			if err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("%s, %s: afterwards %v, %v", listener, name, response, err)
			}
		}
	}
}

// A request of a client that does not read a large body ends in time over HTTP/1.1, HTTP/2 and HTTP/3.
func TestSlowReader(t *testing.T) {
	const size = 32 << 20
	folder := servertest.NewFolder(t)
	folder.Write("sites/large/body", strings.Repeat("x", size))
	folder.Write("sites/large/manifest.json", fmt.Sprintf(`{"page": "large", "host": "www.example.org", "resources": [
		{"path": "/", "file": "body", "content_type": "text/plain", "content_encoding": "", "wire_bytes": %d}]}`, size))
	s := start(t, map[string]string{"write_timeout": "300ms", "pages": folder.Path("sites")}, "")
	logged := func(listener string) {
		t.Helper()
		servertest.Eventually(t, "the end over "+listener, func() bool {
			events := s.events("request")
			return len(events) > 0 && events[len(events)-1]["listener"] == listener
		})
		if event := s.lastEvent("request"); event["bytes"].(float64) >= size {
			t.Errorf("event %v", event)
		}
	}
	conn, err := tls.Dial("tcp", s.addresses["https/tcp"], s.Client().Config("http/1.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", testHost)
	if _, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	logged(listenerHTTPS)
	h3, h2 := s.Client().H3Transport(s.addresses["h3/udp"], false), s.Client().H2Transport(s.addresses["https/tcp"])
	defer h3.Close()
	for listener, transport := range map[string]http.RoundTripper{listenerH3: h3, listenerHTTPS: h2} {
		n := len(s.events("request"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		response, err := transport.RoundTrip(request(t, http.MethodGet, "/").WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		servertest.Eventually(t, "another event", func() bool { return len(s.events("request")) > n })
		logged(listener)
	}
}

// Excess concurrent requests from one address are refused. Requests from another address are answered.
func TestRequestsAreLimited(t *testing.T) {
	s := start(t, map[string]string{"max_streams": "4", "max_share": "50", "read_timeout": "1m"}, "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	busy := s.Client().H2Transport(s.addresses["https/tcp"])
	statuses := make(chan int, 4)
	for range 4 {
		body, _ := io.Pipe()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+testHost+"/dns-query", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/dns-message")
		go func() {
			response, err := busy.RoundTrip(r)
			if err != nil {
				statuses <- 0
				return
			}
			statuses <- response.StatusCode
			response.Body.Close()
		}()
	}
	for range 2 {
		if status := <-statuses; status != http.StatusServiceUnavailable {
			t.Errorf("status %d", status)
		}
	}
	other := s.Client().H2Transport(s.addresses["https/tcp"])
	other.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext
	dial := other.DialContext
	other.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dial(ctx, network, s.addresses["https/tcp"])
	}
	response, err := other.RoundTrip(dohRequest(t, http.MethodGet, servertest.Question(testHost, dns.TypeA)))
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%v, %v", response, err)
	}
}
