package coalesce

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/servertest"
	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// Each error is one line with the property and its value. Nothing stays open.
func TestStartRefuses(t *testing.T) {
	helper := servertest.NewFolder(t)
	pair, err := tls.LoadX509KeyPair(helper.Path("cert.pem"), helper.Path("key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	busyTCP, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busyTCP.Close()
	busyUDP, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busyUDP.Close()
	for name, c := range map[string]struct {
		options options
		err     []string
	}{
		"pages":   {options{pages: helper.Path("missing")}, []string{"pages", "missing", "no such file"}},
		"https":   {options{https: busyTCP.Addr().String()}, []string{"https", busyTCP.Addr().String(), "address already in use"}},
		"h3":      {options{h3: busyUDP.LocalAddr().String()}, []string{"h3", busyUDP.LocalAddr().String(), "address already in use"}},
		"doq":     {options{doq: busyUDP.LocalAddr().String()}, []string{"doq", busyUDP.LocalAddr().String(), "address already in use"}},
		"address": {options{doq: "853"}, []string{"doq", "853", "missing port"}},
		"control": {options{control: helper.Path("missing/control")}, []string{"control", "missing/control", "no such file"}},
		"long":    {options{control: helper.Path(strings.Repeat("x", 200))}, []string{"control", "is longer than the 107 bytes"}},
		"events":  {options{events: helper.Path("missing/events")}, []string{"events", "missing/events", "no such file"}},
	} {
		c.options.IdleTimeout = time.Second
		s := newServer(c.options, []*dnsserver.Config{{}}, &tls.Config{Certificates: []tls.Certificate{pair}},
			&shared{tickets: early.NewTicketKeys(), events: newEventLog()})
		err := s.start()
		if err == nil {
			t.Errorf("%s: started", name)
			_ = s.stop()
			continue
		}
		for _, part := range append(c.err, "plugin/coalesce: ") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
		if strings.Contains(err.Error(), "\n") || len(s.closers) != 0 {
			t.Errorf("%s: %q, %d left open", name, err, len(s.closers))
		}
	}
}

func TestSetupRefuses(t *testing.T) {
	for corefile, want := range map[string]string{
		".:0 {\n coalesce {\n doq :0\n }\n}":                                          "need a certificate",
		".:0 {\n coalesce {\n retry on\n }\n}\na.:0 {\n coalesce {\n retry on\n }\n}": "only one server block",
	} {
		_, err := caddy.Start(caddy.CaddyfileInput{Contents: []byte(corefile), Filepath: "Corefile", ServerTypeName: "dns"})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Corefile:") {
			t.Errorf("%q: %v", corefile, err)
		}
	}
}

// A handshake that the client aborts is reported with the reason.
func TestFailedHandshakeIsReported(t *testing.T) {
	s := start(t, nil, "")
	c := s.Client()
	c.TLS.RootCAs = x509.NewCertPool()
	if _, err := quic.DialAddr(t.Context(), s.addresses["doq/udp"], c.Config("doq"), nil); err == nil {
		t.Fatal("the client trusts everybody")
	}
	servertest.Eventually(t, "the connection's event", func() bool { return len(s.events("connection")) == 1 })
	if event := s.lastEvent("connection"); !strings.Contains(event["error"].(string), "certificate") {
		t.Errorf("event %v", event)
	}
}

func TestIdleTimeout(t *testing.T) {
	s := start(t, map[string]string{"idle_timeout": "200ms"}, "")
	s.Client().Connect(t, s.addresses["doq/udp"], "doq")
	var stats struct{ Open, Connections map[string]int }
	servertest.Eventually(t, "the connection", func() bool {
		s.command(`{"command": "stats"}`, &stats)
		return stats.Connections["doq"] == 1
	})
	servertest.Eventually(t, "its end", func() bool {
		s.command(`{"command": "stats"}`, &stats)
		return stats.Open["doq"] == 0
	})
}

// Stopping closes connections and removes the control socket.
func TestStop(t *testing.T) {
	var conn *quic.Conn
	var control string
	t.Run("run", func(t *testing.T) {
		s := start(t, nil, "")
		c := s.Client()
		var err error
		if conn, err = quic.DialAddr(t.Context(), s.addresses["doq/udp"], c.Config("doq"), nil); err != nil {
			t.Fatal(err)
		}
		control = s.Path("control")
	})
	select {
	case <-conn.Context().Done():
	case <-time.After(5 * time.Second):
		t.Fatal("the server did not close the connection within 5 s")
	}
	if _, err := os.Stat(control); err == nil {
		t.Error("the control socket stays")
	}
}

// When the server stops, it sends GOAWAY over HTTP/2 and answers open requests (RFC 9113, section 6.8).
func TestStopSaysGoAway(t *testing.T) {
	result := make(chan error, 1)
	t.Run("run", func(t *testing.T) {
		s := start(t, nil, "")
		h2 := s.Client().H2Transport(s.addresses["https/tcp"])
		h2.Protocols = new(http.Protocols)
		h2.Protocols.SetHTTP2(true)
		conn, err := h2.NewClientConn(context.Background(), "https", testHost+":443")
		if err != nil {
			t.Fatal(err)
		}
		wire, err := servertest.Question(testHost, dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		body, rest := io.Pipe()
		post, err := http.NewRequest(http.MethodPost, "https://"+testHost+"/dns-query", body)
		if err != nil {
			t.Fatal(err)
		}
		post.Header.Set("Content-Type", "application/dns-message")
		status := make(chan error, 1)
		go func() {
			response, err := conn.RoundTrip(post)
			if err == nil && response.StatusCode != http.StatusOK {
				err = errors.New(response.Status)
			}
			status <- err
		}()
		if _, err := rest.Write(wire[:10]); err != nil {
			t.Fatal(err)
		}
		response, err := conn.RoundTrip(dohRequest(t, http.MethodGet, servertest.Question(testHost, dns.TypeA)))
		if err != nil || response.StatusCode != http.StatusOK { // the server then has the first request too
			t.Fatal(response, err)
		}
		go func() { // while the server stops, at the end of this subtest
			for deadline := time.Now().Add(5 * time.Second); conn.Available() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					result <- errors.New("the server did not announce its end within 5 s")
					return
				}
			}
			_, _ = rest.Write(wire[10:])
			_ = rest.Close()
			result <- <-status
		}()
	})
	if err := <-result; err != nil {
		t.Error(err)
	}
}
