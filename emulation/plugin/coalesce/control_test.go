package coalesce

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/control"
	"crosslayer.example/emulation/internal/servertest"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

func TestReadyNamesEveryListener(t *testing.T) {
	s := start(t, nil, "")
	for _, listener := range []string{"h3/udp", "doq/udp", "https/tcp", "dns/udp", "dns/tcp"} {
		if s.addresses[listener] == "" {
			t.Errorf("no %s in %v", listener, s.addresses)
		}
	}
}

func TestControlSocketIsPrivate(t *testing.T) {
	s := start(t, nil, "")
	info, err := os.Stat(s.Path("control"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestCloseConnections(t *testing.T) {
	s := start(t, nil, "")
	dial := func(listener string) *quic.Conn {
		return s.Client().Connect(t, s.addresses[listener+"/udp"], listener)
	}
	closed := func(conn *quic.Conn, code quic.ApplicationErrorCode) {
		t.Helper()
		select {
		case <-conn.Context().Done():
		case <-time.After(5 * time.Second):
			t.Fatal("the connection stays open")
		}
		var reason *quic.ApplicationError
		if err := context.Cause(conn.Context()); !errors.As(err, &reason) || reason.ErrorCode != code || !reason.Remote {
			t.Errorf("closed with %v", err)
		}
	}
	type answer struct {
		control.Reply
		Closed int
	}
	var got answer

	h3, doq := dial("h3"), dial("doq")
	s.command(`{"command": "close-connections", "listener": "h3"}`, &got)
	if !got.OK || got.Closed != 1 {
		t.Errorf("answer %+v", got)
	}
	closed(h3, 0x100)
	if doq.Context().Err() != nil {
		t.Error("the DoQ connection was closed too")
	}
	h3 = dial("h3")
	got = answer{}
	s.command(`{"command": "close-connections"}`, &got)
	if !got.OK || got.Closed != 2 {
		t.Errorf("answer %+v", got)
	}
	closed(h3, 0x100)
	closed(doq, 0)
	servertest.Eventually(t, "no open connection", func() bool {
		var stats struct{ Open map[string]int }
		s.command(`{"command": "stats"}`, &stats)
		return stats.Open["h3"] == 0 && stats.Open["doq"] == 0
	})
	got = answer{}
	s.command(`{"command": "close-connections"}`, &got)
	if !got.OK || got.Closed != 0 {
		t.Errorf("answer %+v", got)
	}
}

// A connection that is closed before the end of its handshake receives the same error code as others.
func TestCloseWaitsForTheHandshake(t *testing.T) {
	s := start(t, nil, "")
	c := s.Client()
	c.Warm(t, s.addresses["h3/udp"], "h3")
	r := servertest.NewRelay(t, s.addresses["h3/udp"], true)
	conn := c.Dial(t, r.Address(), "h3")
	r.RequestSent()
	<-conn.HandshakeComplete() // at the client
	var answer struct {
		control.Reply
		Closed int `json:"closed"`
	}
	done := make(chan struct{})
	go func() {
		s.command(`{"command": "close-connections", "listener": "h3"}`, &answer)
		close(done)
	}()
	select {
	case <-conn.Context().Done():
		t.Fatalf("closed before the end of the handshake: %v", context.Cause(conn.Context()))
	case <-time.After(soon):
	}
	r.Release()
	<-done
	<-conn.Context().Done()
	var closed *quic.ApplicationError
	if err := context.Cause(conn.Context()); !errors.As(err, &closed) || closed.ErrorCode != 0x100 || answer.Closed != 1 {
		t.Errorf("closed %d, client told %v", answer.Closed, err)
	}
}

// close-connections for https closes the TCP connections of the web server. QUIC connections stay open.
func TestCloseConnectionsOverTCP(t *testing.T) {
	s := start(t, nil, "")
	doq := s.Client().Connect(t, s.addresses["doq/udp"], "doq")
	var opened []*tls.Conn
	for range 2 {
		conn, err := tls.Dial("tcp", s.addresses["https/tcp"], s.Client().Config("http/1.1"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		opened = append(opened, conn)
	}
	closed := func() int {
		t.Helper()
		var answer struct {
			control.Reply
			Closed int
		}
		s.command(`{"command": "close-connections", "listener": "https"}`, &answer)
		if !answer.OK {
			t.Errorf("answer %+v", answer)
		}
		return answer.Closed
	}
	if number := closed(); number != len(opened) {
		t.Errorf("closed %d", number)
	}
	for _, conn := range opened {
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes from a closed connection", n)
		}
	}
	if doq.Context().Err() != nil {
		t.Error("the DoQ connection was closed too")
	}
	if number := closed(); number != 0 {
		t.Errorf("closed %d again", number)
	}
}

func TestAltSvc(t *testing.T) {
	s := start(t, nil, "")
	client := s.Client()
	h2, h3 := client.H2Transport(s.addresses["https/tcp"]), client.H3Transport(s.addresses["h3/udp"], false)
	defer h2.CloseIdleConnections()
	defer h3.Close()
	header := func(transport http.RoundTripper) string {
		t.Helper()
		response, err := transport.RoundTrip(request(t, http.MethodGet, "/"))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.Header.Get("Alt-Svc")
	}
	const value = `h3=":443"; ma=3600`
	for _, set := range []string{"", value, ""} {
		var answer control.Reply
		if s.command(fmt.Sprintf(`{"command": "alt-svc", "value": %q}`, set), &answer); !answer.OK {
			t.Fatalf("answer %+v", answer)
		}
		if over := header(h2); over != set {
			t.Errorf("set to %q, over HTTP/2 %q", set, over)
		}
		if over := header(h3); over != "" {
			t.Errorf("set to %q, over HTTP/3 %q", set, over)
		}
	}
}

func TestStats(t *testing.T) {
	s := start(t, nil, "")
	conn := s.Client().Connect(t, s.addresses["doq/udp"], "doq")
	servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA)))
	servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA)))
	var stats struct {
		control.Reply
		Open, Connections, Requests, Queries map[string]int
	}
	s.command(`{"command": "stats"}`, &stats)
	if !stats.OK || stats.Open["doq"] != 1 || stats.Connections["doq"] != 1 || stats.Queries["doq"] != 2 || len(stats.Requests) != 0 {
		t.Errorf("%+v", stats)
	}
}

func TestControlRefuses(t *testing.T) {
	s := start(t, nil, "")
	for _, line := range []string{`nonsense`, `{}`, `{"command": "dance"}`, `{"command": "close-connections", "listener": "dot"}`, `{"command": "alt-svc", "value": 1}`} {
		var answer control.Reply
		s.command(line, &answer)
		if answer.OK || answer.Error == "" {
			t.Errorf("%s: %+v", line, answer)
		}
	}
}

// After the command certificate, every listener sends the new certificate, also to clients without SNI.
func TestCertificateIsReplaced(t *testing.T) {
	s := start(t, nil, "")
	shown := func(network, alpn, name string) *big.Int {
		t.Helper()
		config := s.Client().Config(alpn)
		config.ServerName, config.InsecureSkipVerify = name, true
		config.ClientSessionCache = nil
		address := s.addresses[map[string]string{"h2": "https", "h3": "h3", "doq": "doq"}[alpn]+"/"+network]
		if network == "tcp" {
			conn, err := tls.Dial("tcp", address, config)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			return conn.ConnectionState().PeerCertificates[0].SerialNumber
		}
		conn, err := quic.DialAddr(t.Context(), address, config, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.CloseWithError(0, "") }()
		return conn.ConnectionState().TLS.PeerCertificates[0].SerialNumber
	}
	everywhere := func() (serials []*big.Int) {
		for _, name := range []string{testHost, ""} {
			serials = append(serials, shown("tcp", "h2", name), shown("udp", "h3", name), shown("udp", "doq", name))
		}
		return serials
	}
	first := everywhere()
	s.NewCertificate()
	for i, serial := range everywhere() {
		if serial.Cmp(first[i]) != 0 {
			t.Error("the new file was read without being told")
		}
	}
	var answer control.Reply
	s.command(fmt.Sprintf(`{"command": "certificate", "certificate": %q, "key": %q}`, s.Path("cert.pem"), s.Path("key.pem")), &answer)
	if !answer.OK {
		t.Fatalf("answer %+v", answer)
	}
	second := everywhere()
	for i, serial := range second {
		if serial.Cmp(first[i]) == 0 || serial.Cmp(second[0]) != 0 {
			t.Errorf("listener %d shows %v, was %v", i, serial, first[i])
		}
	}
	s.command(fmt.Sprintf(`{"command": "certificate", "certificate": %q, "key": %q}`, s.Path("nowhere"), s.Path("key.pem")), &answer)
	if answer.OK || answer.Error == "" {
		t.Errorf("answer %+v", answer)
	}
}
