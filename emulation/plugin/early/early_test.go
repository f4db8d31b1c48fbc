package early

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// soon is how long tests wait to verify that something does not happen, e.g. an answer before the end of the handshake.
const soon = 150 * time.Millisecond

// A query in early data is answered while the relay delays the end of the handshake, unless the mode is late. A NOTIFY always
// waits.
func TestEarlyData(t *testing.T) {
	for _, c := range []struct {
		mode  string
		query *dns.Msg
		early bool
	}{
		{"on", servertest.Question(testHost, dns.TypeA), true},
		{"on", servertest.Notify(), false},
		{"late", servertest.Question(testHost, dns.TypeA), false},
	} {
		t.Run(c.mode+" "+dns.OpcodeToString[c.query.Opcode], func(t *testing.T) {
			s := start(t, "early_data "+c.mode)
			client := s.Client()
			client.Warm(t, s.doq, DoQ)
			relay := servertest.NewRelay(t, s.doq, true)
			stream := servertest.Send(t, client.Dial(t, relay.Address(), DoQ), c.query)
			relay.RequestSent()
			if !c.early {
				servertest.Eventually(t, "early data from the client", func() bool { return relay.Saw(servertest.EarlyPacket) })
				_ = stream.SetReadDeadline(time.Now().Add(soon))
				if n, err := stream.Read(make([]byte, 1)); n > 0 || err == nil {
					t.Fatal("answered before the end of the handshake")
				}
				_ = stream.SetReadDeadline(time.Now().Add(5 * time.Second))
				relay.Release()
			}
			if answer := servertest.Receive(t, stream); answer.Rcode != dns.RcodeSuccess {
				t.Errorf("answer %v", answer)
			}
			if from, _ := seen.Load(c.query.Question[0].String()); from.(Origin).HandshakeComplete || !from.(Origin).Resumed {
				t.Errorf("origin %+v", from)
			}
		})
	}
}

func TestEarlyDataOff(t *testing.T) {
	s := start(t, "early_data off")
	c := s.Client()
	c.Warm(t, s.doq, DoQ)
	conn := c.Dial(t, s.doq, DoQ)
	servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA)))
	if state := conn.ConnectionState(); state.Used0RTT || !state.TLS.DidResume {
		t.Errorf("%+v", state)
	}
}

func TestRetry(t *testing.T) {
	for setting, want := range map[string]bool{"on": true, "off": false} {
		s := start(t, "retry "+setting)
		r := servertest.NewRelay(t, s.doq, false)
		servertest.Receive(t, servertest.Send(t, s.Client().Dial(t, r.Address(), DoQ), servertest.Question(testHost, dns.TypeA)))
		if r.Saw(servertest.RetryPacket) != want {
			t.Errorf("retry %s: Retry packet seen: %v", setting, r.Saw(servertest.RetryPacket))
		}
	}
}

// Tickets of CoreDNS's own DoT listener resume sessions over DoQ and vice versa, until the keys are rotated.
func TestTicketsAreSharedAndRotated(t *testing.T) {
	s := start(t, "", "tls://.:0 {\n\tbind 127.0.0.2\n\ttls cert.pem key.pem\n\tearly\n\tfile zone .\n}\n")
	var dot string
	for _, l := range s.instance.Servers() {
		if address := l.Addr(); address != nil && strings.HasPrefix(address.String(), "127.0.0.2:") {
			dot = address.String()
		}
	}
	overDoT := func(c servertest.Client) bool {
		conn, err := tls.Dial("tcp", dot, c.Config())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.CloseWrite()
		_, _ = conn.Read(make([]byte, 1)) // the tickets arrive before the end of the stream
		return conn.ConnectionState().DidResume
	}
	overDoQ := func(c servertest.Client) bool {
		c.Warm(t, s.doq, DoQ)
		conn := c.Dial(t, s.doq, DoQ)
		<-conn.HandshakeComplete()
		return conn.ConnectionState().TLS.DidResume
	}
	c := s.Client()
	if overDoT(c) || !overDoQ(c) || !overDoT(c) {
		t.Error("tickets do not resume elsewhere")
	}
	c = s.Client()
	overDoT(c)
	s.instance.StorageMu.RLock()
	s.instance.Storage[ticketsKey{}].(*TicketKeys).Rotate()
	s.instance.StorageMu.RUnlock()
	if overDoT(c) {
		t.Error("a ticket from before the rotation resumes")
	}
}

func TestStopTellsTheClients(t *testing.T) {
	var closed <-chan struct{}
	t.Run("run", func(t *testing.T) {
		s := start(t, "")
		conn, err := s.Client().DialPlain(t.Context(), s.doq, DoQ)
		if err != nil {
			t.Fatal(err)
		}
		closed = conn.Context().Done()
	})
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
		t.Fatal("the server did not close the connection in time")
	}
}

// lastMessage records the messages that are written.
type lastMessage struct {
	test.ResponseWriter
	written []*dns.Msg
}

func (k *lastMessage) WriteMsg(m *dns.Msg) error {
	k.written = append(k.written, m)
	return nil
}

func TestPadding(t *testing.T) {
	answers := plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		return dns.RcodeSuccess, w.WriteMsg(new(dns.Msg).SetReply(r))
	})
	refuses := plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		return dns.RcodeRefused, nil
	})
	ours := WithOrigin(t.Context(), Origin{})
	coreDNS := func(address string) context.Context {
		return context.WithValue(t.Context(), dnsserver.Key{}, &dnsserver.Server{Addr: address})
	}
	padded := func() *dns.Msg { return servertest.Padded(servertest.Question(testHost, dns.TypeA)) }
	for _, c := range []struct {
		name  string
		next  plugin.Handler
		ctx   context.Context
		query *dns.Msg
		want  bool
	}{
		{"padded query", answers, ours, padded(), true},
		{"refusal", refuses, ours, padded(), true},
		{"over DoT", answers, coreDNS("tls://.:853"), padded(), true},
		{"query without padding", answers, ours, servertest.Question(testHost, dns.TypeA).SetEdns0(1232, false), false},
		{"in the clear", answers, coreDNS("dns://.:53"), padded(), false},
	} {
		w := new(lastMessage)
		rcode, err := Early{Next: c.next}.ServeDNS(c.ctx, w, c.query)
		if err != nil || plugin.ClientWrite(rcode) && len(w.written) != 1 {
			t.Errorf("%s: rcode %d, error %v, %d answers", c.name, rcode, err, len(w.written))
			continue
		}
		wire, err := w.written[0].Pack()
		if err != nil {
			t.Error(err)
		}
		if got := len(wire)%PaddingBlock == 0; got != c.want {
			t.Errorf("%s: %d bytes", c.name, len(wire))
		}
	}
}

func TestParse(t *testing.T) {
	changed := Options{
		Retry: true, EarlyData: Late, IdleTimeout: 2 * time.Second, MaxConnections: 3, MaxStreams: 4, MaxShare: 100,
		ReadTimeout: time.Second, WriteTimeout: time.Minute,
	}
	for _, c := range []struct {
		input   string
		address string
		want    Options
		err     string // part of the error; empty for no error
	}{
		{"early", "", DefaultOptions, ""},
		{"early {\n doq :853\n}", ":853", DefaultOptions, ""},
		{"early {\n doq :853\n retry on\n early_data late\n single_use off\n idle_timeout 2s\n max_connections 3\n max_streams 4\n max_share 100\n read_timeout 1s\n write_timeout 1m\n}", ":853", changed, ""},
		{"early {\n max_connections 0\n}", "", Options{}, "max_connections is a number from 1"},
		{"early {\n max_share 101\n}", "", Options{}, "max_share is a number from 1 to 100"},
		{"early {\n read_timeout 0s\n}", "", Options{}, "must be positive"},
		{"early :853", "", Options{}, "Wrong argument count"},
		{"early {\n doq :1 :2\n}", "", Options{}, "Wrong argument count"},
		{"early {\n doq :1\n doq :2\n}", "", Options{}, "given twice"},
		{"early {\n pages /x\n}", "", Options{}, "unknown property 'pages'"},
		{"early {\n retry yes\n}", "", Options{}, "either on or off"},
		{"early {\n early_data soon\n}", "", Options{}, "on, off or late"},
		{"early {\n idle_timeout 0s\n}", "", Options{}, "must be positive"},
		{"early\nearly", "", Options{}, "once per Server Block"},
	} {
		address, options, err := parseBlock(caddy.NewTestController("dns", c.input))
		switch {
		case c.err == "" && (err != nil || address != c.address || options != c.want):
			t.Errorf("%q: %s, %+v, %v", c.input, address, options, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q: error %v, not %q", c.input, err, c.err)
		}
	}
}

func TestSetupRefuses(t *testing.T) {
	f := servertest.NewFolder(t)
	for corefile, want := range map[string]string{
		".:0 {\n early {\n doq :0\n }\n}":                           "needs a certificate",
		".:0 {\n tls cert.pem key.pem\n early {\n doq 853\n }\n}\n": "plugin/early: doq: listen udp",
	} {
		if _, err := caddy.Start(f.Input(corefile)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", corefile, err)
		}
	}
}

// IsEarly recognizes a stream that arrived as early data after the handshake is complete, too.
func TestEarlyDataThatIsSeenLate(t *testing.T) {
	folder := servertest.NewFolder(t)
	certificate, err := tls.LoadX509KeyPair(folder.Path("cert.pem"), folder.Path("key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	keys, secured := NewTicketKeys(), &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	keys.Share(secured)
	listener, err := NewPolicy(DefaultOptions, keys).Listen("127.0.0.1:0", Protocol{Name: DoQ, ALPN: DoQ}, secured, &quic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	early := make(chan bool)
	listener.Serve(new(Conns), func(conn *Conn) {
		<-conn.HandshakeComplete()
		conn.ServeStreams(func(stream *quic.Stream) { early <- conn.IsEarly(stream.StreamID()) })
	})
	client, address := folder.Client(), listener.Addr().String()
	client.Warm(t, address, DoQ)
	relay := servertest.NewRelay(t, address, true)
	conn := client.Dial(t, relay.Address(), DoQ)
	servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA))
	relay.RequestSent()
	servertest.Eventually(t, "early data from the client", func() bool { return relay.Saw(servertest.EarlyPacket) })
	relay.Release()
	if !<-early {
		t.Error("early data is not said to be early once the handshake is complete")
	}
	<-conn.HandshakeComplete()
	servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA))
	if <-early {
		t.Error("a stream after the handshake is said to be early")
	}
}
