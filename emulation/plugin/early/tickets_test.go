package early

import (
	"crypto/tls"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/miekg/dns"
)

// With single_use on, replayed early data is not answered.
func TestReplay(t *testing.T) {
	for setting, want := range map[string]int32{"on": 1, "off": 2} {
		s := start(t, "single_use "+setting)
		name := "replay-" + setting + ".example.org"
		client := s.Client()
		client.Warm(t, s.doq, DoQ)
		relay := servertest.NewRelay(t, s.doq, true)
		conn := client.Dial(t, relay.Address(), DoQ)
		stream := servertest.Send(t, conn, servertest.Question(name, dns.TypeA))
		relay.RequestSent()
		servertest.Receive(t, stream)
		relay.Release()
		<-conn.HandshakeComplete()
		if !conn.ConnectionState().Used0RTT {
			t.Fatalf("single_use %s: the first use was refused", setting)
		}
		_ = conn.CloseWithError(0, "") // else the server assigns the copies to the open connection
		servertest.Eventually(t, "the server to forget the connection", func() bool {
			relay.Replay(t)
			time.Sleep(soon)
			return asked(name+".").Load() >= want
		})
		for range 3 {
			relay.Replay(t)
		}
		time.Sleep(soon)
		if got := asked(name + ".").Load(); got != want && setting == "on" {
			t.Errorf("single_use %s: answered %d times", setting, got)
		}
	}
}

// pinned is a session cache that ignores new tickets.
type pinned struct{ ticket *tls.ClientSessionState }

func (p pinned) Get(string) (*tls.ClientSessionState, bool) { return p.ticket, true }
func (p pinned) Put(string, *tls.ClientSessionState)        {}

// A ticket that was used with early data still resumes its session, but its early data is refused.
func TestUsedTicket(t *testing.T) {
	s := start(t, "")
	c := s.Client()
	c.Warm(t, s.doq, DoQ)
	ticket, _ := c.TLS.ClientSessionCache.Get(testHost)
	c.TLS.ClientSessionCache = pinned{ticket}
	for first := true; ; first = false {
		conn := c.Dial(t, s.doq, DoQ)
		<-conn.HandshakeComplete()
		state := conn.ConnectionState()
		if !state.TLS.DidResume || state.Used0RTT != first {
			t.Errorf("first use %v: resumed %v, early data %v", first, state.TLS.DidResume, state.Used0RTT)
		}
		if !first {
			return
		}
		servertest.Receive(t, servertest.Send(t, conn, servertest.Question(testHost, dns.TypeA)))
	}
}

func TestKeysAreRenewedAndForgetUsedTickets(t *testing.T) {
	now := time.Unix(0, 0)
	k := NewTicketKeys()
	k.now = func() time.Time { return now }
	k.renewed = now
	if !k.markUsed([]byte("ticket")) || k.markUsed([]byte("ticket")) || !k.markUsed([]byte("another")) {
		t.Error("a ticket is used not once")
	}
	k.renew()
	if k.markUsed([]byte("ticket")) {
		t.Error("forgotten while its key is still accepted")
	}
	k.renew()
	if len(k.keys) != 2 || !k.markUsed([]byte("ticket")) {
		t.Error("kept in mind though its key is gone")
	}
	k.used = make(map[[16]byte]struct{}, maxUsed)
	for i := range maxUsed {
		k.used[[16]byte{byte(i), byte(i >> 8), byte(i >> 16)}] = struct{}{}
	}
	if k.markUsed([]byte("one more")) {
		t.Error("early data is accepted that could not be recognised again")
	}
}

func BenchmarkUse(b *testing.B) {
	k := NewTicketKeys()
	ticket := make([]byte, 1500)
	for i := range b.N {
		ticket[0], ticket[1], ticket[2] = byte(i), byte(i>>8), byte(i>>16)
		k.markUsed(ticket)
	}
}
