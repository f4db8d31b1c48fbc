package coalesce

import (
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"testing"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// All events of a connection with a valid token have address_validated true.
func TestAddressValidated(t *testing.T) {
	for _, c := range []struct {
		listener, event string
		exchange        func(client servertest.Client, address string)
	}{
		{"h3", "request", func(client servertest.Client, address string) {
			roundTrip(t, client, address, request(t, http.MethodGet, "/"), func() {})
		}},
		{"doq", "query", func(client servertest.Client, address string) {
			conn := client.Dial(t, address, "doq")
			servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA)))
		}},
	} {
		t.Run(c.listener+" "+c.event, func(t *testing.T) {
			s := start(t, nil, "")
			client := s.Client()
			client.TLS.ClientSessionCache = nil             // only the token validates the address
			for n, validated := range []bool{false, true} { // the client has the token when it receives the answer
				c.exchange(client, s.addresses[c.listener+"/udp"])
				servertest.Eventually(t, "the connection's event", func() bool { return len(s.events("connection")) == n+1 })
				for _, kind := range []string{c.event, "connection"} {
					if event := s.lastEvent(kind); event["address_validated"] != validated {
						t.Errorf("validated %v expected: %v", validated, event)
					}
				}
			}
		})
	}
	s := start(t, nil, "")
	transport := s.Client().H2Transport(s.addresses["https/tcp"])
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request(t, http.MethodGet, "/"))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	for _, kind := range []string{"request", "connection"} {
		if event := s.lastEvent(kind); event["address_validated"] != false {
			t.Errorf("over TCP no token validates: %v", event)
		}
	}
}

// Events of requests and queries contain the key share and the number of packets of the ClientHello.
func TestKeyShareAndInitials(t *testing.T) {
	s := start(t, nil, "")
	for _, c := range []struct {
		share    tls.CurveID
		initials float64
	}{{tls.X25519, 1}, {tls.X25519MLKEM768, 2}} {
		servertest.Eventually(t, c.share.String(), func() bool { // repeated: on a busy machine a client may retransmit its hello
			client := s.Client()
			client.TLS.CurvePreferences = []tls.CurveID{c.share}
			roundTrip(t, client, s.addresses["h3/udp"], request(t, http.MethodGet, "/"), func() {})
			conn := client.Connect(t, s.addresses["doq/udp"], "doq")
			servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA)))
			return !slices.ContainsFunc([]string{"request", "query"}, func(kind string) bool {
				event := s.lastEvent(kind)
				return event["key_share"] != c.share.String() || event["initials"] != c.initials
			})
		})
	}
}

// received records the order in which a client receives tickets and tokens.
type received struct{ frames []string }

func (r *received) AddProducer() qlogwriter.Recorder { return r }
func (r *received) SupportsSchemas(string) bool      { return false }
func (r *received) Close() error                     { return nil }

func (r *received) RecordEvent(event qlogwriter.Event) {
	packet, ok := event.(qlog.PacketReceived)
	if !ok || packet.Header.PacketType != qlog.PacketType1RTT {
		return
	}
	for _, frame := range packet.Frames {
		switch frame.Frame.(type) {
		case *qlog.CryptoFrame:
			r.frames = append(r.frames, "ticket")
		case *qlog.NewTokenFrame:
			r.frames = append(r.frames, "token")
		}
	}
}

// quic-go sends ticket and token in random order. The event reports the order of each connection.
func TestTokenEvent(t *testing.T) {
	s := start(t, nil, "")
	reported := 0
	for range 12 {
		before := len(s.events("token")) // a later connection may reuse a port
		seen := &received{}
		transport := s.Client().H3Transport(s.addresses["h3/udp"], false)
		transport.QUICConfig.Tracer = func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace { return seen }
		response, err := transport.RoundTrip(request(t, http.MethodGet, "/"))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		_ = transport.Close() // ends the goroutine that writes to seen
		if len(seen.frames) < 2 {
			t.Fatalf("received %v", seen.frames)
		}
		remote := s.lastEvent("request")["remote"]
		// On a busy machine the token may be sent more than once: compare the first one.
		tokens := s.events("token")[before:]
		first := slices.IndexFunc(tokens, func(event map[string]any) bool { return event["remote"] == remote })
		if first < 0 {
			t.Fatalf("no token was reported for %v", remote)
		}
		reported++
		token := tokens[first]
		if token["behind_ticket"] != (seen.frames[0] == "ticket") || token["listener"] != "h3" {
			t.Errorf("received %v, event %v", seen.frames, token)
		}
	}
	if connections := len(s.events("connection")); reported != connections {
		t.Errorf("tokens for %d of %d connections", reported, connections)
	}
	var stats struct{ Tokens map[string]int }
	s.command(`{"command": "stats"}`, &stats)
	if stats.Tokens["h3"] != len(s.events("token")) {
		t.Errorf("%d events, %v", len(s.events("token")), stats)
	}
}
