package coalesce

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/control"
	"crosslayer.example/emulation/internal/servertest"

	"github.com/coredns/coredns/plugin/pkg/doh"

	"github.com/miekg/dns"
	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"
)

// soon is how long tests wait to verify that something does not happen, e.g. an answer before the end of the handshake.
const soon = 150 * time.Millisecond

// roundTrip sends one HTTP/3 request on a new connection and returns status and body. It calls sent after the request.
func roundTrip(t *testing.T, c servertest.Client, address string, request *http.Request, sent func()) (int, []byte) {
	t.Helper()
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent() }}
	request = request.WithContext(httptrace.WithClientTrace(request.Context(), trace))
	early := request.Method == http3.MethodGet0RTT || request.Method == http3.MethodHead0RTT
	transport := c.H3Transport(address, early)
	defer transport.Close()
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Error(err)
		return 0, nil
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, body
}

// request returns an HTTP request. The method determines whether quic-go's client sends it as early data.
func request(t *testing.T, method, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, "https://"+testHost+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func dohRequest(t *testing.T, method string, m *dns.Msg) *http.Request {
	t.Helper()
	r, err := doh.NewRequest(method, testHost, testHost, m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// earlyExchange is a kind of request. do sends it, as early data if the client has a ticket, and calls sent after it. do
// returns a value that depends on the answer.
type earlyExchange struct {
	name     string
	listener string
	alpn     string
	early    bool // answered before the end of the handshake
	event    string
	do       func(t *testing.T, c servertest.Client, address string, sent func()) any
}

// exchanges has every kind of request.
var exchanges = []earlyExchange{
	{"DoQ query", "doq/udp", "doq", true, "query", func(t *testing.T, c servertest.Client, address string, sent func()) any {
		stream := servertest.Send(t, c.Dial(t, address, "doq"), servertest.Question(testHost, dns.TypeA))
		sent()
		return servertest.Receive(t, stream).Rcode
	}},
	{"DoQ notify", "doq/udp", "doq", false, "query", func(t *testing.T, c servertest.Client, address string, sent func()) any {
		stream := servertest.Send(t, c.Dial(t, address, "doq"), servertest.Notify())
		sent()
		return servertest.Receive(t, stream).Rcode
	}},
	{"H3 GET", "h3/udp", "h3", true, "request", func(t *testing.T, c servertest.Client, address string, sent func()) any {
		status, body := roundTrip(t, c, address, request(t, http3.MethodGet0RTT, "/"), sent)
		return []any{status, string(body)}
	}},
	{"H3 HEAD", "h3/udp", "h3", true, "request", func(t *testing.T, c servertest.Client, address string, sent func()) any {
		status, _ := roundTrip(t, c, address, request(t, http3.MethodHead0RTT, "/"), sent)
		return status
	}},
	{"H3 POST", "h3/udp", "h3", false, "request", func(t *testing.T, c servertest.Client, address string, sent func()) any {
		return earlyPost(t, c, address, "/", nil, sent)
	}},
	{"DoH3 GET", "h3/udp", "h3", true, "query", func(t *testing.T, c servertest.Client, address string, sent func()) any {
		r := dohRequest(t, http.MethodGet, servertest.Question(testHost, dns.TypeA))
		r.Method = http3.MethodGet0RTT
		status, body := roundTrip(t, c, address, r, sent)
		return []any{status, len(body)}
	}},
	{"DoH3 GET notify", "h3/udp", "h3", false, "query", func(t *testing.T, c servertest.Client, address string, sent func()) any {
		r := dohRequest(t, http.MethodGet, servertest.Notify())
		r.Method = http3.MethodGet0RTT
		status, body := roundTrip(t, c, address, r, sent)
		return []any{status, len(body)}
	}},
	{"DoH3 POST", "h3/udp", "h3", false, "query", func(t *testing.T, c servertest.Client, address string, sent func()) any {
		wire, err := servertest.Question(testHost, dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		return earlyPost(t, c, address, doh.Path, wire, sent)
	}},
}

// earlyPost sends a POST as early data, which is not allowed for clients. It writes the frames itself, since http3's client
// sends the content of a request only after the handshake.
func earlyPost(t *testing.T, c servertest.Client, address, path string, body []byte, sent func()) int {
	t.Helper()
	conn := c.Dial(t, address, "h3")
	new(http3.Transport).NewClientConn(conn) // opens the control stream
	stream, err := conn.OpenStream()
	if err != nil {
		t.Error(err)
		return 0
	}
	var fields bytes.Buffer
	encoder := qpack.NewEncoder(&fields)
	for _, field := range []qpack.HeaderField{
		{Name: ":method", Value: http.MethodPost}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: testHost},
		{Name: ":path", Value: path}, {Name: "content-type", Value: doh.MimeType},
	} {
		_ = encoder.WriteField(field) // into memory
	}
	const dataFrame, headersFrame = 0, 1
	frames := append(quicvarint.Append([]byte{headersFrame}, uint64(fields.Len())), fields.Bytes()...)
	frames = append(quicvarint.Append(append(frames, dataFrame), uint64(len(body))), body...)
	if _, err := stream.Write(frames); err != nil {
		t.Error(err)
		return 0
	}
	_ = stream.Close()
	sent()
	response := quicvarint.NewReader(stream)
	kind, err := quicvarint.Read(response)
	length, lengthErr := quicvarint.Read(response)
	encoded := make([]byte, length)
	if _, readErr := io.ReadFull(response, encoded); kind != headersFrame || errors.Join(err, lengthErr, readErr) != nil {
		t.Errorf("frame %d: %v", kind, errors.Join(err, lengthErr, readErr))
		return 0
	}
	first, err := qpack.NewDecoder().Decode(encoded)()
	if err != nil || first.Name != ":status" {
		t.Errorf("%+v, %v", first, err)
		return 0
	}
	_, _ = io.Copy(io.Discard, response)
	status, _ := strconv.Atoi(first.Value)
	return status
}

// Requests that may be replayed are answered while the relay delays the end of the handshake. Others wait for it.
func TestEarlyData(t *testing.T) {
	s := start(t, nil, "")
	for _, exchange := range exchanges {
		t.Run(exchange.name, func(t *testing.T) { testEarlyData(t, s, exchange) })
	}
}

// In the mode late, all requests wait for the end of the handshake. Events still report them as early data.
func TestEarlyDataLate(t *testing.T) {
	s := start(t, nil, "")
	var answer control.Reply
	s.command(`{"command": "early-data", "mode": "late"}`, &answer)
	if !answer.OK {
		t.Fatal(answer.Error)
	}
	for _, exchange := range exchanges {
		exchange.early = false
		t.Run(exchange.name, func(t *testing.T) { testEarlyData(t, s, exchange) })
	}
}

// testEarlyData sends an exchange as early data through a relay that delays the end of the handshake.
func testEarlyData(t *testing.T, s *running, exchange earlyExchange) {
	t.Helper()
	c := s.Client()
	want := exchange.do(t, c, s.addresses[exchange.listener], func() {}) // with a full handshake; the client receives a ticket
	servertest.Eventually(t, "a ticket", func() bool {
		session, ok := c.TLS.ClientSessionCache.Get(testHost)
		return ok && session != nil
	})
	r := servertest.NewRelay(t, s.addresses[exchange.listener], true)
	answered := make(chan any, 1)
	go func() { answered <- exchange.do(t, c, r.Address(), r.RequestSent) }()

	var got any
	if exchange.early {
		select {
		case got = <-answered:
		case <-time.After(5 * time.Second):
			t.Fatal("not answered before the end of the handshake")
		}
	} else {
		servertest.Eventually(t, "early data from the client", func() bool { return r.Saw(servertest.EarlyPacket) })
		select {
		case got = <-answered:
			t.Fatalf("answered %v before the end of the handshake", got)
		case <-time.After(soon):
		}
		r.Release()
		select {
		case got = <-answered:
		case <-time.After(5 * time.Second):
			t.Fatal("not answered after the handshake")
		}
	}
	if !equal(got, want) {
		t.Errorf("early data was answered %v, a full handshake %v", got, want)
	}
	if event := s.lastEvent(exchange.event); event["handshake_complete"] != false || event["resumed"] != true {
		t.Errorf("event %v", event)
	}
}

func equal(a, b any) bool {
	as, ok := a.([]any)
	if !ok {
		return a == b
	}
	bs, ok := b.([]any)
	if !ok || len(as) != len(bs) {
		return false
	}
	for i := range as {
		if as[i] != bs[i] {
			return false
		}
	}
	return true
}

// The event of a connection with an early query is written after the handshake and reports early data.
func TestEarlyConnectionEvent(t *testing.T) {
	s := start(t, nil, "")
	c := s.Client()
	c.Warm(t, s.addresses["doq/udp"], "doq")
	r := servertest.NewRelay(t, s.addresses["doq/udp"], true)
	conn := c.Dial(t, r.Address(), "doq")
	stream := servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA))
	r.RequestSent()
	servertest.Receive(t, stream)
	if n := len(s.events("connection")); n != 1 {
		t.Errorf("%d connection events before the end of the second handshake", n)
	}
	r.Release()
	servertest.Eventually(t, "the connection's event", func() bool { return len(s.events("connection")) == 2 })
	if event := s.lastEvent("connection"); event["resumed"] != true || event["early_data"] != true || event["error"] != "" {
		t.Errorf("event %v", event)
	}
}

func TestEarlyDataOff(t *testing.T) {
	s := start(t, map[string]string{"early_data": "off"}, "")
	c := s.Client()
	c.Warm(t, s.addresses["doq/udp"], "doq")
	conn := c.Dial(t, s.addresses["doq/udp"], "doq")
	servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA)))
	if event := s.lastEvent("query"); event["handshake_complete"] != true || event["resumed"] != true {
		t.Errorf("event %v", event)
	}
	if event := s.lastEvent("connection"); event["early_data"] != false || event["resumed"] != true {
		t.Errorf("event %v", event)
	}
}

func TestRetry(t *testing.T) {
	for setting, want := range map[string]bool{"on": true, "off": false} {
		s := start(t, map[string]string{"retry": setting}, "")
		r := servertest.NewRelay(t, s.addresses["doq/udp"], false)
		servertest.Receive(t, servertest.Send(t, s.Client().Dial(t, r.Address(), "doq"), servertest.Question(testHost, dns.TypeA)))
		if r.Saw(servertest.RetryPacket) != want {
			t.Errorf("retry %s: Retry packet seen: %v", setting, r.Saw(servertest.RetryPacket))
		}
	}
}
