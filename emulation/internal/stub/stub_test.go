package stub

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/control"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// eachScheme runs a test for each transport, with an upstream that answers correctly and is not started.
func eachScheme(t *testing.T, schemes []string, test func(*testing.T, *server, credentials)) {
	c := newCredentials(t)
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) { test(t, newServer(t, scheme, c), c) })
	}
}

var (
	connected  = []string{"tcp", "tls", "https", "h3", "quic"}
	tlsSchemes = []string{"tls", "https", "h3", "quic"}
	overQUIC   = []string{"h3", "quic"}
)

func TestAnswersOverEveryTransport(t *testing.T) {
	eachScheme(t, everyScheme, func(t *testing.T, s *server, c credentials) {
		r := startStub(t, s.start().url(), c)
		first := r.good("www.example.org")
		if first.NewConnection != (s.scheme != "udp") || first.Resumed != nil && *first.Resumed || first.ClientProtocol != "udp" ||
			first.Name != "www.example.org." || first.Type != "A" || first.Rcode != "NOERROR" || first.Time == 0 ||
			first.Protocol != r.settings.upstream.protocol || first.LocalPort == 0 || first.AnswerBytes == 0 {
			t.Errorf("first query: %+v", first)
		}
		if (first.HandshakeMs > 0) != (s.scheme != "udp") || first.QueryMs <= 0 || first.TotalMs < first.HandshakeMs+first.QueryMs {
			t.Errorf("times of the first query: %+v", first)
		}
		if padded := first.QueryBytes%paddingBlock == 0; padded != r.settings.upstream.protocol.encrypted() {
			t.Errorf("a query of %d bytes", first.QueryBytes)
		}
		second := r.good("www.example.org")
		if second.NewConnection || second.HandshakeMs != 0 || second.Connection != first.Connection {
			t.Errorf("the second query pays for a connection: %+v", second)
		}
		if answer := r.exchange("tcp", question("www.example.org", dns.TypeA)); len(answer.Answer) != 1 {
			t.Errorf("over TCP: %v", answer)
		}
		if rows := r.rows(); rows[2].ClientProtocol != "tcp" {
			t.Errorf("the client's protocol: %+v", rows[2])
		}
		if n := s.accepted.Load(); s.scheme != "udp" && n != 1 {
			t.Errorf("%d connections for three queries", n)
		}
	})
}

func TestSessionsAreResetResumedAndForgotten(t *testing.T) {
	eachScheme(t, tlsSchemes, func(t *testing.T, s *server, c credentials) {
		s.start()
		up, _ := parseUpstream(s.url())
		url := s.url()
		if slices.Contains(overQUIC, s.scheme) {
			// Without a delay, the handshake may end before the client sends early data or before the server processes it.
			url = s.scheme + "://" + newRelay(t, s.address, 40*time.Millisecond).address
		}
		for _, resume := range up.protocol.resumptions() {
			t.Run(string(resume), func(t *testing.T) {
				s.early.Store(0)
				r := startStub(t, url, c, "--resumption", string(resume))
				first := r.good("www.example.org")
				r.commandReset("reset-sessions", 1)
				r.commandReset("reset-sessions", 0)
				second := r.good("www.example.org")
				r.commandReset("forget", 1)
				third := r.good("www.example.org")
				if *first.Resumed || *second.Resumed != (resume != resumeNothing) || *third.Resumed {
					t.Errorf("resumed: %v, then %v, then %v", *first.Resumed, *second.Resumed, *third.Resumed)
				}
				if !second.NewConnection || !third.NewConnection || third.Connection != 3 {
					t.Errorf("connections: %+v, %+v", second, third)
				}
				early := resume == resumeEarly
				if first.EarlyData || second.EarlyData != early || third.EarlyData || s.early.Load() > 0 != early {
					t.Errorf("early data: %v, then %v, then %v; the server saw %d", first.EarlyData, second.EarlyData, third.EarlyData, s.early.Load())
				}
				if early != (second.EarlyDataAccepted != nil && *second.EarlyDataAccepted) || early != (second.HandshakeMs == 0) {
					t.Errorf("early data accepted: %+v", second)
				}
			})
		}
	})
}

// A ticket that arrives after forget, on the closing connection, is not used.
func TestForgottenSessionsStayForgotten(t *testing.T) {
	r := startStub(t, "tls://127.0.0.1:1", newCredentials(t))
	session := r.upstream.(*session)
	old := session.cache
	session.reset(true)
	tickets{old}.Put("", new(tls.ClientSessionState))
	if session.stats().Ticket {
		t.Error("a late ticket was kept")
	}
}

func TestConcurrentQueriesWaitForOneHandshake(t *testing.T) {
	const n = 50
	eachScheme(t, tlsSchemes, func(t *testing.T, s *server, c credentials) {
		release := make(chan struct{})
		base := s.config.Clone()
		s.config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			<-release
			return nil, nil
		}
		if s.scheme == "h3" || s.scheme == "quic" {
			s.config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
				<-release
				config := base.Clone()
				config.NextProtos = []string{map[string]string{"h3": "h3", "quic": "doq"}[s.scheme]}
				return config, nil
			}
		}
		r := startStub(t, s.start().url(), c, "--timeout", "1m")
		var asking sync.WaitGroup
		for i := range n {
			asking.Go(func() { r.exchange("udp", question(fmt.Sprintf("n%d.example.org", i), dns.TypeA)) })
		}
		until(t, "all queries wait", func() bool {
			upstream := r.upstream.(*session)
			upstream.mu.Lock()
			defer upstream.mu.Unlock()
			return upstream.current != nil && upstream.current.users == n
		})
		close(release)
		asking.Wait()
		rows := r.rows()
		paid := 0
		for _, row := range rows {
			if row.Error != "" || row.Connection != 1 || row.HandshakeMs <= 0 {
				t.Fatalf("%+v", row)
			}
			if row.NewConnection {
				paid++
			}
		}
		if len(rows) != n || paid != 1 || s.accepted.Load() != 1 {
			t.Errorf("%d rows, %d that set a connection up, %d connections at the server", len(rows), paid, s.accepted.Load())
		}
	})
}

func TestPooledConnectionsServeOneQueryAtATime(t *testing.T) {
	eachScheme(t, []string{"tls"}, func(t *testing.T, s *server, c credentials) {
		r := startStub(t, s.start().url(), c, "--connections", "pool")
		first, second := r.good("www.example.org"), r.good("www.example.org")
		if !first.NewConnection || second.NewConnection || second.Connection != 1 {
			t.Errorf("one after the other: %+v, %+v", first, second)
		}
		// While the only connection is in use, the next query sets up another one, with the ticket of the first.
		p := r.upstream.(*pool)
		held := p.take()
		third := r.good("www.example.org")
		p.give(held)
		if !third.NewConnection || third.Connection != 2 || !*third.Resumed {
			t.Errorf("beside another: %+v", third)
		}
		if stats := p.stats(); stats.Connections != 2 || stats.Open != 2 || !stats.Ticket {
			t.Errorf("%+v", stats)
		}
		r.commandReset("reset-sessions", 2)
		fourth := r.good("www.example.org")
		r.commandReset("forget", 1)
		fifth := r.good("www.example.org")
		if !*fourth.Resumed || *fifth.Resumed || fifth.Connection != 4 {
			t.Errorf("resumed after a reset, and forgotten: %+v, %+v", fourth, fifth)
		}
	})
}

func TestEachQueryHasItsConnection(t *testing.T) {
	eachScheme(t, []string{"tcp"}, func(t *testing.T, s *server, c credentials) {
		r := startStub(t, s.start().url(), c, "--connections", "query")
		for number := range uint64(3) {
			if row := r.good("www.example.org"); !row.NewConnection || row.Connection != number+1 {
				t.Errorf("query %d: %+v", number, row)
			}
		}
		if stats := r.upstream.stats(); stats.Connections != 3 || stats.Open != 0 {
			t.Errorf("%+v", stats)
		}
		r.commandReset("reset-sessions", 0)
	})
}

func TestManyQueriesAtOnceGetTheirOwnAnswers(t *testing.T) {
	eachScheme(t, everyScheme, func(t *testing.T, s *server, c credentials) {
		r := startStub(t, s.start().url(), c, "--timeout", "1m")
		var asking sync.WaitGroup
		for i := range 300 {
			asking.Go(func() {
				name := fmt.Sprintf("n%d.example.org.", i)
				answer := r.exchange([]string{"udp", "tcp"}[i%2], question(name, dns.TypeA))
				if len(answer.Answer) != 1 || answer.Answer[0].Header().Name != name {
					t.Errorf("%s: %v\n%+v", name, answer, r.rows()[len(r.rows())-1])
				}
			})
		}
		asking.Wait()
	})
}

func TestConnectionClosedWhileIdleIsNotUsed(t *testing.T) {
	eachScheme(t, connected, func(t *testing.T, s *server, c credentials) {
		r := startStub(t, s.start().url(), c)
		r.good("www.example.org")
		s.disconnect()
		until(t, "the stub sees the close", func() bool { return r.upstream.stats().Open == 0 })
		if again := r.good("www.example.org"); !again.NewConnection || again.Connection != 2 || again.Retries != 0 {
			t.Errorf("%+v", again)
		}
	})
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	eachScheme(t, connected, func(t *testing.T, s *server, c credentials) {
		r := startStub(t, s.start().url(), c, "--idle-timeout", "300ms")
		r.good("www.example.org")
		until(t, "the connection is closed", func() bool { return r.upstream.stats().Open == 0 })
		if again := r.good("www.example.org"); !again.NewConnection || again.Retries != 0 {
			t.Errorf("%+v", again)
		}
	})
}

func TestQueryIsAskedOnceMoreWhenItsConnectionBreaks(t *testing.T) {
	eachScheme(t, connected, func(t *testing.T, s *server, c credentials) {
		var asked atomic.Int32
		s.hangUp = func() bool { return asked.Add(1) == 2 }
		r := startStub(t, s.start().url(), c)
		r.good("www.example.org")
		if again := r.good("www.example.org"); again.Retries != 1 || !again.NewConnection || again.Connection != 2 {
			t.Errorf("%+v", again)
		}
	})
}

func TestSecondBreakIsTheAnswer(t *testing.T) {
	eachScheme(t, connected, func(t *testing.T, s *server, c credentials) {
		s.hangUp = func() bool { return true }
		r := startStub(t, s.start().url(), c)
		if row := r.bad("www.example.org", ""); row.Retries != 1 || row.Error == "" || s.accepted.Load() != 2 {
			t.Errorf("%+v after %d connections", row, s.accepted.Load())
		}
	})
}

func TestServerThatRestarts(t *testing.T) {
	eachScheme(t, everyScheme, func(t *testing.T, s *server, c credentials) {
		r := startStub(t, s.start().url(), c, "--timeout", "2s", "--udp-retransmit", "50ms")
		r.good("www.example.org")
		s.stop()
		s.start()
		if again := r.good("www.example.org"); again.NewConnection != (s.scheme != "udp") {
			t.Errorf("%+v", again)
		}
	})
}

// If a server silently loses its connections, the query is repeated on a new connection within its timeout.
func TestServerThatForgotTheConnection(t *testing.T) {
	eachScheme(t, overQUIC, func(t *testing.T, s *server, c credentials) {
		relay := newRelay(t, s.start().address, 0)
		r := startStub(t, s.scheme+"://"+relay.address, c, "--timeout", "2s")
		first := r.good("www.example.org")
		relay.drop.Store(int32(first.LocalPort))
		if again := r.good("www.example.org"); again.Retries != 1 || again.Connection != 2 {
			t.Errorf("%+v", again)
		}
	})
}

const idleTime = 1100 * time.Millisecond // longer than the default of --probe-idle-after

// If the path was lost while the connection was idle, the query waits only one PTO on the old connection.
func TestPathLostWhileIdle(t *testing.T) {
	eachScheme(t, overQUIC, func(t *testing.T, s *server, c credentials) {
		t.Parallel() // most of the time is waiting
		const delay = 20 * time.Millisecond
		relay := newRelay(t, s.start().address, delay)
		r := startStub(t, s.scheme+"://"+relay.address, c, "--timeout", "20s", "--resumption", "early-data")
		first := r.good("www.example.org")
		r.good("www.example.org") // for more RTT samples, and for ticket and token to arrive
		time.Sleep(idleTime)
		relay.drop.Store(int32(first.LocalPort))
		again := r.good("www.example.org")
		if again.Retries != 1 || again.Connection != 2 || again.EarlyDataAccepted == nil || !*again.EarlyDataAccepted {
			t.Errorf("%+v", again)
		}
		if again.SilenceMs < 2*float64(delay/time.Millisecond) {
			t.Errorf("asked again after %.0f ms, less than a round-trip", again.SilenceMs)
		}
		if again.TotalMs > 5000 {
			t.Errorf("asked again after %.0f ms: the guard, which looks for 10 s, has noticed", again.TotalMs)
		}
		if next := r.good("www.example.org"); next.Connection != 2 || next.Retries != 0 {
			t.Errorf("and then %+v", next)
		}
	})
}

// With --probe-idle-after 0, the query waits until the silent connection is closed after half the timeout.
func TestPathLostWhileIdleWithoutProbe(t *testing.T) {
	eachScheme(t, overQUIC, func(t *testing.T, s *server, c credentials) {
		t.Parallel()
		relay := newRelay(t, s.start().address, 0)
		r := startStub(t, s.scheme+"://"+relay.address, c, "--timeout", "4s", "--probe-idle-after", "0")
		first := r.good("www.example.org")
		time.Sleep(idleTime)
		relay.drop.Store(int32(first.LocalPort))
		if again := r.good("www.example.org"); again.TotalMs < 2000 || again.SilenceMs != 0 {
			t.Errorf("%+v", again)
		}
	})
}

// A query is not repeated if a slow upstream has acknowledged it.
func TestSlowUpstreamAfterIdleIsQueriedOnce(t *testing.T) {
	eachScheme(t, connected, func(t *testing.T, s *server, c credentials) {
		t.Parallel()
		good := s.answer
		var slow atomic.Bool
		s.answer = func(query []byte) []byte {
			if slow.Load() {
				time.Sleep(time.Second)
			}
			return good(query)
		}
		r := startStub(t, s.start().url(), c)
		r.good("www.example.org")
		time.Sleep(idleTime)
		slow.Store(true)
		if again := r.good("www.example.org"); again.Retries != 0 || again.Connection != 1 || again.NewConnection {
			t.Errorf("%+v", again)
		}
	})
}

func TestUpstreamThatIsNotThere(t *testing.T) {
	faults := map[string]string{
		"udp": "connection refused", "tcp": "connection refused", "tls": "connection refused", "https": "connection refused",
		"h3": "timeout", "quic": "timeout",
	}
	eachScheme(t, everyScheme, func(t *testing.T, s *server, c credentials) {
		s.start().stop()
		r := startStub(t, s.url(), c, "--timeout", "200ms")
		r.bad("www.example.org", faults[s.scheme])
		s.start()
		r.good("www.example.org")
	})
}

func TestSilentUpstream(t *testing.T) {
	eachScheme(t, everyScheme, func(t *testing.T, s *server, c credentials) {
		good := s.answer
		s.answer = func(query []byte) []byte {
			if strings.Contains(string(query), "silent") {
				return nil
			}
			return good(query)
		}
		r := startStub(t, s.start().url(), c, "--timeout", "300ms")
		r.good("www.example.org")
		answer, row := r.ask("silent.example.org")
		if row.Error != "timeout" || answer.Rcode != dns.RcodeServerFailure || row.TotalMs < 300 {
			t.Errorf("%+v", row)
		}
		if next := r.good("www.example.org"); next.NewConnection {
			t.Errorf("one slow answer cost the connection: %+v", next)
		}
	})
}

// The upstream never answers on the first connection, and answers once on the second. QUIC has other tests.
func TestWedgedConnectionsAreGivenUp(t *testing.T) {
	eachScheme(t, []string{"tcp", "tls", "https"}, func(t *testing.T, s *server, c credentials) {
		t.Parallel() // most of the time is waiting
		good := s.answer
		var answers atomic.Int32
		s.answer = func(query []byte) []byte {
			if n := s.accepted.Load(); n == 1 || n == 2 && answers.Add(1) > 1 {
				return nil
			}
			return good(query)
		}
		r := startStub(t, s.start().url(), c, "--timeout", "300ms")
		r.bad("www.example.org", "timeout")
		if next := r.good("www.example.org"); !next.NewConnection || next.Connection != 2 {
			t.Errorf("after one query without an answer: %+v", next)
		}
		r.bad("www.example.org", "timeout")
		r.bad("www.example.org", "timeout")
		if next := r.good("www.example.org"); !next.NewConnection || next.Connection != 3 {
			t.Errorf("after two queries without an answer: %+v", next)
		}
	})
}

// If the upstream does not read, queries end in time and the connection is replaced.
func TestUpstreamThatDoesNotRead(t *testing.T) {
	s := newServer(t, "tcp", newCredentials(t))
	s.hangUp = func() bool {
		if s.accepted.Load() == 1 {
			<-t.Context().Done()
		}
		return false
	}
	r := startStub(t, s.start().url(), newCredentials(t), "--timeout", "300ms")
	var asking sync.WaitGroup
	began := time.Now()
	for i := range 200 {
		asking.Go(func() { r.exchange("udp", question(fmt.Sprintf("n%d.example.org", i), dns.TypeA)) })
	}
	asking.Wait()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("answered after %s", took)
	}
	r.good("www.example.org")
}

// A client that sends queries and does not read answers has limited open queries. Its connection is closed.
func TestClientThatDoesNotRead(t *testing.T) {
	s := newServer(t, "udp", newCredentials(t))
	r := startStub(t, s.start().url(), newCredentials(t), "--client-timeout", "500ms")
	before := runtime.NumGoroutine()
	conn, err := net.Dial("tcp", r.udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(1 << 12)
	query := framed(pack(t, question("large.example.org", dns.TypeTXT)))
	_ = conn.SetWriteDeadline(time.Now().Add(20 * time.Second))
	peak := 0
	for range 12_000 {
		if _, err := conn.Write(query); err != nil {
			break // the stub has closed the connection or stopped reading
		}
		peak = max(peak, runtime.NumGoroutine())
	}
	if peak > before+3*maxPipelined { // each query has goroutines at the stub and at the upstream
		t.Errorf("%d goroutines for one client", peak-before)
	}
	until(t, "the client is let go", func() bool { return runtime.NumGoroutine() <= before+10 && len(r.slots) == 0 })
	if answer := r.exchange("udp", question("www.example.org", dns.TypeA)); len(answer.Answer) != 1 {
		t.Errorf("%v", answer)
	}
}

// Answers on one TCP connection are sent in the order of their arrival (RFC 7766, section 7).
func TestAnswersInAnyOrder(t *testing.T) {
	c := newCredentials(t)
	s := newServer(t, "quic", c)
	good, release := s.answer, make(chan struct{})
	s.answer = func(query []byte) []byte {
		if strings.Contains(string(query), "slow") {
			<-release
		}
		return good(query)
	}
	r := startStub(t, s.start().url(), c)
	conn, err := net.Dial("tcp", r.udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, name := range []string{"slow.example.org", "www.example.org"} {
		if _, err := conn.Write(framed(pack(t, question(name, dns.TypeA)))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"www.example.org.", "slow.example.org."} {
		answer, err := (&dns.Conn{Conn: conn}).ReadMsg()
		if err != nil || answer.Question[0].Name != name || len(answer.Answer) != 1 {
			t.Fatalf("%v, %v", answer, err)
		}
		if name == "www.example.org." {
			close(release)
		}
	}
}

// RFC 7766, section 6.2.3.
func TestClientsThatAskNothingAreLetGo(t *testing.T) {
	r := startStub(t, "udp://127.0.0.1:1", newCredentials(t), "--client-timeout", "200ms")
	conn, err := net.Dial("tcp", r.udp.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestClientsAreLimited(t *testing.T) {
	r := startStub(t, newServer(t, "udp", newCredentials(t)).start().url(), newCredentials(t))
	var clients []net.Conn
	for range maxClients + 1 {
		conn, err := net.Dial("tcp", r.udp.LocalAddr().String())
		if err != nil {
			t.Skipf("not as many descriptors here: %v", err)
		}
		defer conn.Close()
		clients = append(clients, conn)
	}
	last := clients[maxClients]
	_ = last.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := last.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one client too many is kept: %v", err)
	}
	clients[0].Close()
	until(t, "there is room again", func() bool {
		client := &dns.Client{Net: "tcp", Timeout: time.Second}
		_, _, err := client.Exchange(question("www.example.org", dns.TypeA), r.udp.LocalAddr().String())
		return err == nil
	})
}

func TestLostDatagramsAreSentAgain(t *testing.T) {
	s := newServer(t, "udp", newCredentials(t))
	good := s.answer
	var asked atomic.Int32
	s.answer = func(query []byte) []byte {
		if asked.Add(1) < 4 {
			return nil
		}
		return good(query)
	}
	r := startStub(t, s.start().url(), newCredentials(t), "--udp-retransmit", "10ms")
	// Sent at 0, 10, 30 and 70 ms.
	if row := r.good("www.example.org"); row.Retries != 3 || row.QueryMs < 70 {
		t.Errorf("%+v", row)
	}
}

func TestBadAnswers(t *testing.T) {
	mangle := func(change func(m *dns.Msg)) func(*testing.T, []byte) []byte {
		return func(t *testing.T, query []byte) []byte {
			m := answerTo(t, query)
			change(m)
			return pack(t, m)
		}
	}
	for name, bad := range map[string]struct {
		answer func(*testing.T, []byte) []byte
		error  string
		udp    string // if not empty: UDP ignores the answer and waits
	}{
		"shorter than a header": {func(_ *testing.T, query []byte) []byte { return query[:7] }, "malformed", ""},
		"cut":                   {func(t *testing.T, query []byte) []byte { return pack(t, answerTo(t, query))[:60] }, "malformed", ""},
		"between records": {func(t *testing.T, query []byte) []byte {
			wire := pack(t, answerTo(t, query))
			binary.BigEndian.PutUint16(wire[6:], 7)
			return wire
		}, "malformed", ""},
		"garbage": {func(_ *testing.T, query []byte) []byte {
			return append(append([]byte(nil), query[0], query[1], 0x80, 0, 0, 1, 0, 9, 0, 9, 0, 9), 0xc0, 0xff, 0xff)
		}, "malformed", ""},
		"wrong ID":       {mangle(func(m *dns.Msg) { m.Id ^= 0x1234 }), "wrong id", "wrong id"},
		"a query":        {mangle(func(m *dns.Msg) { m.Response = false }), "not a response", "not a response"},
		"wrong name":     {mangle(func(m *dns.Msg) { m.Question[0].Name = "other.example.org." }), "wrong question", "wrong question"},
		"wrong type":     {mangle(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA }), "wrong question", "wrong question"},
		"wrong opcode":   {mangle(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), "wrong question", "wrong question"},
		"no question":    {mangle(func(m *dns.Msg) { m.Question = nil }), "wrong question", "wrong question"},
		"two questions":  {mangle(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), "wrong question", "wrong question"},
		"nothing at all": {func(*testing.T, []byte) []byte { return []byte{} }, "malformed", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time is waiting
			eachScheme(t, everyScheme, func(t *testing.T, s *server, c credentials) {
				good := s.answer
				s.answer = func(query []byte) []byte {
					if strings.Contains(string(query), "bad") {
						return bad.answer(t, query)
					}
					return good(query)
				}
				r := startStub(t, s.start().url(), c, "--timeout", "1s", "--udp-retransmit", "1s")
				row := r.bad("bad.example.org", bad.error)
				if waited := s.scheme == "udp" && row.TotalMs >= 1000; s.scheme == "udp" && bad.udp != "" && !waited {
					t.Errorf("over UDP, it was taken for the answer: %+v", row)
				}
				if row.Retries != 0 {
					t.Errorf("asked again: %+v", row)
				}
				r.good("www.example.org")
			})
		})
	}
}

func TestRefusalsNeedNotRepeatTheQuestion(t *testing.T) {
	eachScheme(t, everyScheme, func(t *testing.T, s *server, c credentials) {
		s.answer = func(query []byte) []byte {
			return []byte{query[0], query[1], 0x80, dns.RcodeRefused, 0, 0, 0, 0, 0, 0, 0, 0}
		}
		r := startStub(t, s.start().url(), c)
		if answer, row := r.ask("www.example.org"); answer.Rcode != dns.RcodeRefused || row.Error != "" || len(answer.Question) != 1 {
			t.Errorf("%+v\n%v", row, answer)
		}
	})
}

func TestLargeAnswers(t *testing.T) {
	eachScheme(t, everyScheme, func(t *testing.T, s *server, c credentials) {
		r := startStub(t, s.start().url(), c)
		for _, size := range []int{0, 512, 1232, 4096, 65535} {
			query := question("large.example.org", dns.TypeTXT)
			if size > 0 {
				query.SetEdns0(uint16(size), false)
			}
			limit := max(size, dns.MinMsgSize)
			answer := r.exchange("udp", query)
			if whole := len(answer.Answer) == 20; answer.Truncated == whole || whole != (limit >= 4330) {
				t.Errorf("EDNS size %d: %d records, TC %v", size, len(answer.Answer), answer.Truncated)
			}
			if answer.Compress = true; answer.Len() > limit {
				t.Errorf("EDNS size %d: %d bytes", size, answer.Len())
			}
			if answer = r.exchange("tcp", query); answer.Truncated || len(answer.Answer) != 20 {
				t.Errorf("EDNS size %d over TCP: %d records, TC %v", size, len(answer.Answer), answer.Truncated)
			}
		}
		for _, row := range r.rows() {
			if row.Error != "" || row.TCPFallback != (s.scheme == "udp") || row.AnswerBytes < 4000 {
				t.Errorf("%+v", row)
			}
		}
	})
}

func TestBadQueries(t *testing.T) {
	good := pack(t, question("www.example.org", dns.TypeA))
	packed := func(change func(m *dns.Msg)) []byte {
		m := question("www.example.org", dns.TypeA)
		change(m)
		return pack(t, m)
	}
	counted := func(section, count byte) []byte {
		wire := append([]byte(nil), good...)
		wire[4+2*section+1] = count
		return wire
	}
	r := startStub(t, newServer(t, "udp", newCredentials(t)).start().url(), newCredentials(t))
	for name, bad := range map[string]struct {
		wire  []byte
		rcode int // -1 for silence
		error string
	}{
		"nothing":                      {[]byte{}, -1, "malformed query"},
		"half a header":                {good[:6], -1, "malformed query"},
		"an answer":                    {packed(func(m *dns.Msg) { m.Response = true }), -1, ""},
		"cut":                          {good[:20], dns.RcodeFormatError, "malformed query"},
		"only a header":                {good[:12], dns.RcodeFormatError, "malformed query"},
		"no question":                  {counted(0, 0), dns.RcodeFormatError, "malformed query"},
		"two questions":                {packed(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), dns.RcodeFormatError, "malformed query"},
		"announces records it has not": {counted(3, 2), dns.RcodeFormatError, "malformed query"},
		"two OPT records": {packed(func(m *dns.Msg) {
			m.SetEdns0(1232, false)
			m.Extra = append(m.Extra, m.Extra[0])
		}), dns.RcodeFormatError, "malformed query"},
		"NOTIFY":         {packed(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), dns.RcodeNotImplemented, "opcode NOTIFY"},
		"zone transfer":  {packed(func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAXFR }), dns.RcodeNotImplemented, "zone transfer"},
		"EDNS version 1": {packed(func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }), dns.RcodeBadVers, "EDNS version is not 0"},
	} {
		for _, network := range []string{"udp", "tcp"} {
			t.Run(name+" over "+network, func(t *testing.T) {
				before := len(r.rows())
				conn, err := net.Dial(network, r.udp.LocalAddr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				client := &dns.Conn{Conn: conn}
				// The good query after it shows whether the bad one was answered, and that the stub continues.
				for _, wire := range [][]byte{bad.wire, good} {
					if _, err := client.Write(wire); err != nil {
						t.Fatal(err)
					}
				}
				rcodes := map[int]int{}
				answers := 2
				if bad.rcode < 0 {
					answers = 1
				}
				for range answers {
					answer, err := client.ReadMsg()
					if err != nil {
						t.Fatal(err)
					}
					rcodes[answer.Rcode]++
				}
				if rcodes[dns.RcodeSuccess] != 1 || bad.rcode >= 0 && rcodes[bad.rcode] != 1 {
					t.Errorf("answers by code: %v", rcodes)
				}
				if bad.error == "" {
					return
				}
				// The row of an unanswered bad query may follow that of the good one.
				until(t, "a row says "+bad.error, func() bool {
					return slices.ContainsFunc(r.rows()[before:], func(row row) bool { return row.Error == bad.error })
				})
			})
		}
	}
	t.Run("oversized over tcp", func(t *testing.T) {
		conn, err := net.Dial("tcp", r.udp.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// Announces 65535 bytes, sends 100, and ends.
		if _, err := conn.Write(append([]byte{0xff, 0xff}, make([]byte, 100)...)); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
	r.good("www.example.org")
}

func TestEarlyDataThatIsRefusedIsSentAgain(t *testing.T) {
	eachScheme(t, overQUIC, func(t *testing.T, s *server, c credentials) {
		// Without a delay, the handshake may end before the client sends early data.
		url := s.scheme + "://" + newRelay(t, s.start().address, 10*time.Millisecond).address
		r := startStub(t, url, c, "--resumption", "early-data")
		r.good("www.example.org")
		r.commandReset("reset-sessions", 1)
		s.stop()
		s.noEarly = true
		s.start()
		row := r.good("www.example.org")
		// quic-go's HTTP/3 may still be opening its control stream, and then closes the connection.
		if closed := s.scheme == "h3" && row.Retries == 1; !closed &&
			(!*row.Resumed || !row.EarlyData || row.EarlyDataAccepted == nil || *row.EarlyDataAccepted || row.Retries != 0) {
			t.Errorf("%+v", row)
		}
		if next := r.good("www.example.org"); next.NewConnection || next.EarlyData || next.EarlyDataAccepted != nil {
			t.Errorf("after the refusal: %+v", next)
		}
		// Concurrent queries in early data that is refused.
		r.commandReset("reset-sessions", 1)
		s.stop()
		s.noEarly = false
		s.start()
		r.good("www.example.org")
		r.commandReset("reset-sessions", 1)
		s.stop()
		s.noEarly = true
		s.start()
		var asking sync.WaitGroup
		for i := range 20 {
			asking.Go(func() {
				if answer := r.exchange("udp", question(fmt.Sprintf("n%d.example.org", i), dns.TypeA)); len(answer.Answer) != 1 {
					t.Errorf("%v", answer)
				}
			})
		}
		asking.Wait()
	})
}

func TestCertificatesAreVerified(t *testing.T) {
	eachScheme(t, tlsSchemes, func(t *testing.T, s *server, c credentials) {
		s.start()
		other := startStub(t, s.url(), c, "--server-name", "other.test")
		row := other.bad("www.example.org", "certificate: x509: certificate is valid for dns.test, not other.test")
		if row.Resumed != nil || !row.NewConnection {
			t.Errorf("%+v", row)
		}
		startStub(t, s.url(), newCredentials(t)).bad("www.example.org", "certificate: x509:")
	})
}

// The stub verifies certificates by the policy of the Python clients (tests/integration/test_dns_policy.py).
func TestOnePolicyForCertificates(t *testing.T) {
	rsaKey := func(bits int) crypto.Signer {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	for name, certificate := range map[string]struct {
		credentials
		fault string
	}{
		"RSA 2048":     {credentialsOf(t, rsaKey(2048), false), ""},
		"RSA 1024":     {credentialsOf(t, rsaKey(1024), false), "certificate: an RSA key of 1024 bits, less than 2048"},
		"a CA as leaf": {credentialsOf(t, rsaKey(2048), true), "certificate: the server's certificate is that of a CA"},
	} {
		for _, scheme := range tlsSchemes {
			t.Run(name+" "+scheme, func(t *testing.T) {
				r := startStub(t, newServer(t, scheme, certificate.credentials).start().url(), certificate.credentials)
				if certificate.fault != "" {
					r.bad("www.example.org", certificate.fault)
					return
				}
				r.good("www.example.org")
				r.commandReset("reset-sessions", 1)
				if again := r.good("www.example.org"); again.Resumed == nil || !*again.Resumed {
					t.Errorf("the policy keeps sessions from being resumed: %+v", again)
				}
			})
		}
	}
}

func TestResetCutsWhatHangs(t *testing.T) {
	eachScheme(t, connected, func(t *testing.T, s *server, c credentials) {
		t.Parallel() // most of the time is waiting
		good := s.answer
		s.answer = func(query []byte) []byte {
			if strings.Contains(string(query), "silent") {
				return nil
			}
			return good(query)
		}
		r := startStub(t, s.start().url(), c, "--timeout", "1m")
		answers := make(chan *dns.Msg)
		go func() { answers <- r.exchange("udp", question("silent.example.org", dns.TypeA)) }()
		until(t, "the query is at the server", func() bool { return len(r.slots) == 1 && r.upstream.stats().Open == 1 })
		r.commandReset("reset-sessions", 1)
		if answer := <-answers; answer.Rcode != dns.RcodeServerFailure {
			t.Errorf("%v", answer)
		}
		if row := r.rows()[0]; row.Error != errReset.Error() || row.Retries != 0 {
			t.Errorf("%+v", row)
		}
		if next := r.good("www.example.org"); next.Connection != 2 {
			t.Errorf("%+v", next)
		}
	})
}

func TestResetLetsQueriesEnd(t *testing.T) {
	eachScheme(t, everyScheme, func(t *testing.T, s *server, c credentials) {
		good := s.answer
		arrived, release := make(chan struct{}), make(chan struct{})
		s.answer = func(query []byte) []byte {
			close(arrived)
			<-release
			return good(query)
		}
		r := startStub(t, s.start().url(), c)
		answers := make(chan *dns.Msg, 1)
		go func() { answers <- r.exchange("udp", question("www.example.org", dns.TypeA)) }()
		<-arrived
		before := r.epoch
		closed := make(chan int)
		go func() {
			n := r.reset(false)
			if rows := r.rows(); len(rows) != 1 || rows[0].Error != "" {
				t.Errorf("told when the reset was over: %+v", rows)
			}
			closed <- n
		}()
		until(t, "the reset has begun", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.epoch != before && r.upstream.stats().Open == 0
		})
		close(release)
		if answer := <-answers; answer.Rcode != dns.RcodeSuccess {
			t.Errorf("%v", answer)
		}
		if n := <-closed; (n == 1) != (s.scheme != "udp") {
			t.Errorf("%d closed", n)
		}
	})
}

func TestBadHTTP(t *testing.T) {
	eachScheme(t, []string{"https", "h3"}, func(t *testing.T, s *server, c credentials) {
		for name, bad := range map[string]struct {
			respond func(http.ResponseWriter, []byte)
			error   string
		}{
			"status":      {func(w http.ResponseWriter, _ []byte) { w.WriteHeader(http.StatusServiceUnavailable) }, "http status 503"},
			"redirection": {func(w http.ResponseWriter, _ []byte) { w.Header().Set("Location", "/"); w.WriteHeader(302) }, "http status 302"},
			"type": {func(w http.ResponseWriter, answer []byte) {
				w.Header().Set("Content-Type", "text/html")
				_, _ = w.Write(answer)
			}, "content type is not application/dns-message"},
			"encoding": {func(w http.ResponseWriter, answer []byte) {
				w.Header().Set("Content-Type", dnsMessage)
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(answer)
			}, "content encoding gzip"},
			"oversized": {func(w http.ResponseWriter, _ []byte) {
				w.Header().Set("Content-Type", dnsMessage)
				_, _ = w.Write(make([]byte, 70000))
			}, "oversized"},
		} {
			t.Run(name, func(t *testing.T) {
				s := newServer(t, s.scheme, c)
				s.respond = func(w http.ResponseWriter, r *http.Request) { bad.respond(w, s.answer(queryOf(t, r))) }
				if row := startStub(t, s.start().url(), c).bad("www.example.org", bad.error); row.Retries != 0 {
					t.Errorf("asked again: %+v", row)
				}
			})
		}
		s.respond = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", dnsMessage+"; charset=binary")
			w.Header().Set("Age", "100")
			_, _ = w.Write(s.answer(queryOf(t, r)))
		}
		r := startStub(t, s.start().url(), c)
		if answer, _ := r.ask("www.example.org"); answer.Answer[0].Header().Ttl != 200 {
			t.Errorf("300 s, of which 100 s in a cache: %v", answer)
		}
	})
}

func TestStreamsOfDoQ(t *testing.T) {
	c := newCredentials(t)
	for name, odd := range map[string]struct {
		stream func(t *testing.T, stream *quic.Stream, answer []byte)
		error  string // empty for a correct answer
		closed bool   // with DOQ_PROTOCOL_ERROR
	}{
		"end comes later": {func(t *testing.T, stream *quic.Stream, answer []byte) {
			_, _ = stream.Write(answer[:1])
			_, _ = stream.Write(answer[1:50])
			_, _ = stream.Write(answer[50:])
			<-t.Context().Done()
		}, "", false},
		"keepalive": {func(t *testing.T, stream *quic.Stream, answer []byte) {
			m := new(dns.Msg)
			if err := m.Unpack(answer[2:]); err != nil {
				t.Error(err)
			}
			m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_TCP_KEEPALIVE{Code: dns.EDNS0TCPKEEPALIVE}}
			_, _ = stream.Write(framed(pack(t, m)))
			_ = stream.Close()
		}, "edns-tcp-keepalive over DoQ", true},
		"two answers": {func(_ *testing.T, stream *quic.Stream, answer []byte) {
			_, _ = stream.Write(append(answer, answer...))
			_ = stream.Close()
		}, "oversized", true},
		"half an answer": {func(_ *testing.T, stream *quic.Stream, answer []byte) {
			_, _ = stream.Write(answer[:20])
			_ = stream.Close()
		}, "malformed", true},
		"no answer": {func(_ *testing.T, stream *quic.Stream, _ []byte) { _ = stream.Close() }, "malformed", true},
		"reset":     {func(_ *testing.T, stream *quic.Stream, _ []byte) { stream.CancelWrite(0x5) }, "stream reset with code 0x5", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, "quic", c)
			closed := make(chan error, 1)
			s.stream = func(conn *quic.Conn, stream *quic.Stream) {
				query, err := readMessage(stream)
				if err != nil {
					return
				}
				odd.stream(t, stream, framed(s.answer(query)))
				<-conn.Context().Done()
				select {
				case closed <- context.Cause(conn.Context()):
				default:
				}
			}
			r := startStub(t, s.start().url(), c)
			if odd.error == "" {
				r.good("www.example.org")
				return
			}
			row := r.bad("www.example.org", odd.error)
			retries := map[bool]int{true: 1}[name == "reset"]
			if row.Retries != retries || (r.upstream.stats().Open == 0) != odd.closed {
				t.Errorf("%+v, %+v", row, r.upstream.stats())
			}
			if odd.closed {
				if err := <-closed; err == nil || !strings.Contains(err.Error(), "0x2") {
					t.Errorf("closed with %v", err)
				}
			}
		})
	}
}

// When a query times out, the stub cancels its stream (RFC 9250, section 4.3.1).
func TestGivenUpQueriesAreCancelled(t *testing.T) {
	c := newCredentials(t)
	s := newServer(t, "quic", c)
	stopped := make(chan error, 1)
	var answered atomic.Pointer[quic.Conn]
	s.stream = func(conn *quic.Conn, stream *quic.Stream) {
		query, err := readMessage(stream)
		if err != nil {
			return
		}
		if !strings.Contains(string(query), "endless") {
			answered.Store(conn)
			_, _ = stream.Write(framed(s.answer(query)))
			_ = stream.Close()
			return
		}
		if conn != answered.Load() {
			return // a hedge connection: it is closed as a whole, since it delivers no answer
		}
		// An answer that does not end. A silent connection would be closed as a whole.
		for wire := []byte{0xff, 0xff}; stream.Context().Err() == nil; wire = wire[:1] {
			_, _ = stream.Write(wire)
			time.Sleep(10 * time.Millisecond)
		}
		stopped <- context.Cause(stream.Context())
	}
	r := startStub(t, s.start().url(), c, "--timeout", "300ms")
	r.good("www.example.org")
	r.bad("endless.example.org", "timeout")
	var stopping *quic.StreamError
	if err := <-stopped; !errors.As(err, &stopping) || stopping.ErrorCode != doqRequestCancelled || !stopping.Remote {
		t.Errorf("the server was told %v", err)
	}
}

// A missing end of a stream, and streams that the server opens, are errors in DoQ (RFC 9250, section 4.3.3).
func TestServerThatBreaksDoQ(t *testing.T) {
	c := newCredentials(t)
	t.Run("no end", func(t *testing.T) {
		t.Parallel() // most of the time is waiting
		s := newServer(t, "quic", c)
		closed := make(chan error, 1)
		s.stream = func(conn *quic.Conn, stream *quic.Stream) {
			if query, err := readMessage(stream); err == nil {
				_, _ = stream.Write(framed(s.answer(query)))
				<-conn.Context().Done()
				closed <- context.Cause(conn.Context())
			}
		}
		r := startStub(t, s.start().url(), c)
		r.good("www.example.org")
		select {
		case err := <-closed:
			if !strings.Contains(err.Error(), "0x2") {
				t.Errorf("closed with %v", err)
			}
		case <-time.After(endTimeout + 5*time.Second):
			t.Error("the stream stands for ever")
		}
	})
	t.Run("streams of its own", func(t *testing.T) {
		s := newServer(t, "quic", c)
		opened := make(chan error, 2)
		s.stream = func(conn *quic.Conn, stream *quic.Stream) {
			query, err := readMessage(stream)
			if err != nil {
				return
			}
			_, err = conn.OpenUniStream()
			opened <- err
			_, err = conn.OpenStream()
			opened <- err
			_, _ = stream.Write(framed(s.answer(query)))
			_ = stream.Close()
		}
		startStub(t, s.start().url(), c).good("www.example.org")
		if uni, bidirectional := <-opened, <-opened; uni == nil || bidirectional == nil {
			t.Errorf("the stub lets servers open streams: %v, %v", uni, bidirectional)
		}
	})
}

func TestControlSocket(t *testing.T) {
	c := newCredentials(t)
	s := newServer(t, "quic", c).start()
	r := startStub(t, s.url(), c)
	if info, err := os.Stat(r.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	var ready struct {
		OK                                     bool
		Listen, Upstream, Protocol, Resumption string
	}
	r.command(`{"command": "ready"}`, &ready)
	if !ready.OK || ready.Listen != r.udp.LocalAddr().String() || ready.Upstream != s.url() || ready.Protocol != "DoQ" || ready.Resumption != "ticket" {
		t.Errorf("%+v", ready)
	}
	r.good("www.example.org")
	var stats struct {
		OK                                       bool
		Queries, Failures, Connections, InFlight int
		Open                                     int
		Ticket                                   bool
	}
	until(t, "there is a ticket", func() bool { r.command(`{"command": "stats"}`, &stats); return stats.Ticket })
	if stats.Queries != 1 || stats.Failures != 0 || stats.Connections != 1 || stats.Open != 1 {
		t.Errorf("%+v", stats)
	}
	r.commandReset("forget", 1)
	r.command(`{"command": "stats"}`, &stats)
	if stats.Ticket || stats.Open != 0 {
		t.Errorf("%+v", stats)
	}
	for line, fault := range map[string]string{
		`{"command": "explode"}`: `unknown command "explode"`, `{}`: "no command", `reset`: "not a JSON object",
	} {
		var refused control.Reply
		r.command(line, &refused)
		if refused.OK || !strings.Contains(refused.Error, fault) {
			t.Errorf("%s: %+v", line, refused)
		}
	}
	if _, err := control.Listen(r.path, "stub"); err == nil || !strings.Contains(err.Error(), "belongs to a running stub") {
		t.Errorf("a second stub on the socket: %v", err)
	}
}

func TestIDsThatAreUsedAgain(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	c := &streamConn{Conn: here, idle: time.Hour, idleTimer: time.AfterFunc(time.Hour, func() {}), writing: make(chan struct{}, 1), pending: map[uint16]chan<- result{}}
	first, second, third := make(chan result, 1), make(chan result, 1), make(chan result, 1000)
	id, err := c.register(first)
	if err != nil {
		t.Fatal(err)
	}
	// The first query is answered, and its ID is assigned to another query before unregister.
	c.pending[id] = second
	c.unregister(id, first)
	if c.pending[id] != second {
		t.Error("the second query lost its ID")
	}
	// The second query ends without an answer: its ID stays reserved.
	c.unregister(id, second)
	if answer, known := c.pending[id]; !known || answer != nil {
		t.Error("the ID is free while its answer may come")
	}
	for range 1000 {
		if other, err := c.register(third); err != nil || other == id {
			t.Fatal(other, err)
		}
	}
	c.close()
	if _, err := c.register(third); err == nil {
		t.Error("a closed connection takes queries")
	}
}
