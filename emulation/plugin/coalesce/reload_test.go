package coalesce

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// ask sends a query over a new DoQ connection and returns the serial number of the server's certificate.
func (s *running) ask(t *testing.T, c servertest.Client) (serial string, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := quic.DialAddr(ctx, s.addresses["doq/udp"], c.Config("doq"), nil)
	if err != nil {
		return "", err
	}
	defer conn.CloseWithError(0, "")
	stream, err := conn.OpenStream()
	if err != nil {
		return "", err
	}
	if _, err := stream.Write(servertest.Framed(t, servertest.Question(testHost, dns.TypeA))); err != nil {
		return "", err
	}
	_ = stream.Close()
	_ = stream.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, err = io.ReadAll(stream)
	if certificates := conn.ConnectionState().TLS.PeerCertificates; len(certificates) > 0 {
		serial = certificates[0].SerialNumber.String()
	}
	return serial, err
}

// A reload takes over the sockets. Queries during the reload are answered within three attempts. Afterwards the server has
// the new certificate, and old tickets still resume sessions.
func TestReloadUnderLoad(t *testing.T) {
	fixed := map[string]string{"https": servertest.FreePort(t), "h3": servertest.FreePort(t), "doq": servertest.FreePort(t)}
	s := start(t, fixed, "")
	before := s.Client()
	before.Warm(t, s.addresses["doq/udp"], "doq")
	first, err := s.ask(t, s.Client())
	if err != nil {
		t.Fatal(err)
	}
	s.NewCertificate() // used after the reload
	var done atomic.Bool
	var asking sync.WaitGroup
	asked := make([]atomic.Int32, 4)
	for i := range asked {
		asking.Go(func() {
			h2 := s.Client().H2Transport(s.addresses["https/tcp"])
			for ; !done.Load(); asked[i].Add(1) {
				var err error
				for range 3 {
					if i%2 == 0 {
						_, err = s.ask(t, s.Client())
					} else {
						var response *http.Response
						if response, err = h2.RoundTrip(dohRequest(t, http.MethodGet, servertest.Question(testHost, dns.TypeA))); err == nil {
							_, err = io.Copy(io.Discard, response.Body)
							response.Body.Close()
						}
					}
					if err == nil {
						break
					}
				}
				if err != nil {
					t.Errorf("not answered: %v", err)
					return
				}
			}
		})
	}
	for range 3 {
		if err := s.Reload(s.corefile); err != nil {
			t.Error(err)
		}
		for i := range asked {
			had := asked[i].Load()
			servertest.Eventually(t, "answers after the reload", func() bool { return asked[i].Load() >= had+2 || t.Failed() })
		}
	}
	done.Store(true)
	asking.Wait()
	if again, err := s.ask(t, s.Client()); err != nil || again == first {
		t.Errorf("certificate %s, was %s: %v", again, first, err)
	}
	old := s.addresses["doq/udp"]
	s.connect()
	if s.addresses["doq/udp"] != old {
		t.Errorf("moved from %s to %s", old, s.addresses["doq/udp"])
	}
	conn := before.Dial(t, old, "doq")
	<-conn.HandshakeComplete()
	if !conn.ConnectionState().TLS.DidResume {
		t.Error("a ticket from before the reload does not resume")
	}
}

// If the new Corefile is invalid or cannot be started, the old instance continues with all its listeners.
func TestReloadThatFails(t *testing.T) {
	fixed := map[string]string{"https": servertest.FreePort(t), "h3": servertest.FreePort(t), "doq": servertest.FreePort(t)}
	s := start(t, fixed, "")
	busy, err := net.Listen("tcp", "127.0.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, port, _ := net.SplitHostPort(busy.Addr().String())
	for name, corefile := range map[string]string{
		"syntax":        strings.Replace(s.corefile, "coalesce {", "coalesce {\n nonsense on", 1),
		"pages":         strings.Replace(s.corefile, "/sites", "/missing", 1),
		"late, CoreDNS": s.corefile + "tls://.:" + port + " {\n bind 127.0.0.9\n tls cert.pem nothing.pem\n file zone .\n}\n",
		"control":       strings.Replace(s.corefile, "/control", "/missing/control", 1),
	} {
		if err := s.Reload(corefile); err == nil {
			t.Errorf("%s: reloaded", name)
		}
		if _, err := s.ask(t, s.Client()); err != nil {
			t.Errorf("%s: DoQ: %v", name, err)
		}
		for listener, transport := range httpTransports(s) {
			response, err := transport.RoundTrip(request(t, http.MethodGet, "/"))
			if err != nil {
				t.Errorf("%s: %s: %v", name, listener, err)
				continue
			}
			response.Body.Close()
		}
		s.connect()
	}
	if err := s.Reload(s.corefile); err != nil {
		t.Error(err)
	}
	if _, err := tls.Dial("tcp", s.addresses["https/tcp"], s.Client().Config("h2")); err != nil {
		t.Error(err)
	}
}
