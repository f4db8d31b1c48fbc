//go:build long

package coalesce

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/servertest"
	"crosslayer.example/emulation/plugin/early"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	hostileConnections = 100_000
	hostileWorkers     = 32
	heldByEach         = 8         // open connections of each worker
	peakBytes          = 200 << 20 // of this process, including the attackers
)

// hostile is a kind of attack. It does not matter whether the server accepts the connection.
type hostile struct {
	name   string
	weight int // share of the attacks, percent
	begin  func(a *attacker) (end func())
}

// attacker is one worker with its own address.
type attacker struct {
	*running
	from   net.IP
	packet *quic.Transport
	dot    string
	random *rand.Rand
	// query is a DoQ query with its length.
	query []byte
	// returning is a client that stores tickets.
	returning servertest.Client
}

var timeout = 5 * time.Second

// stream opens a TCP connection from the attacker's address and sends wire. The returned function resets the connection.
func (a *attacker) stream(address string, wire []byte) func() {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: a.from}, Timeout: timeout}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		return func() {}
	}
	_ = conn.SetDeadline(time.Now().Add(timeout))
	_ = conn.(*net.TCPConn).SetLinger(0)
	_, _ = conn.Write(wire)
	return func() { conn.Close() }
}

// secured is stream over TLS.
func (a *attacker) secured(address, alpn string, wire []byte) func() {
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: a.from}, Timeout: timeout}, Config: a.Client().Config(alpn),
	}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		return func() {}
	}
	_ = conn.SetDeadline(time.Now().Add(timeout))
	_ = conn.(*tls.Conn).NetConn().(*net.TCPConn).SetLinger(0)
	_, _ = conn.Write(wire)
	return func() { conn.Close() }
}

// packets opens a QUIC connection with 20 streams that begin with wire and do not end.
func (a *attacker) packets(listener, alpn string, wire []byte) func() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	server, err := net.ResolveUDPAddr("udp", a.addresses[listener+"/udp"])
	if err != nil {
		return func() {}
	}
	conn, err := a.packet.Dial(ctx, server, a.Client().Config(alpn), nil)
	if err != nil {
		return func() {}
	}
	for range 20 {
		if stream, err := conn.OpenStream(); err == nil {
			_, _ = stream.Write(wire)
		}
	}
	return func() { _ = conn.CloseWithError(0, "") }
}

func (a *attacker) noise(n int) []byte {
	wire := make([]byte, n)
	for i := range wire {
		wire[i] = byte(a.random.Uint32())
	}
	return wire
}

// early opens a QUIC connection whose first flight has early data. Without a ticket it only fetches one.
func (a *attacker) early(listener, alpn string, wire []byte) func() {
	server, err := net.ResolveUDPAddr("udp", a.addresses[listener+"/udp"])
	if err != nil {
		return func() {}
	}
	config := a.returning.Config(alpn)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if _, known := config.ClientSessionCache.Get(testHost); !known {
		if conn, err := a.packet.Dial(ctx, server, config, nil); err == nil {
			time.Sleep(20 * time.Millisecond) // the ticket arrives after the handshake
			_ = conn.CloseWithError(0, "")
		}
		return func() {}
	}
	conn, err := a.packet.DialEarly(ctx, server, config, nil)
	if err != nil {
		return func() {}
	}
	for range 5 {
		if stream, err := conn.OpenStream(); err == nil {
			_, _ = stream.Write(wire)
			_ = stream.Close()
		}
	}
	return func() { _ = conn.CloseWithError(0, "") }
}

// unfinished sends early data and does not complete its handshake: it closes its socket.
func (a *attacker) unfinished(wire []byte) func() {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: a.from})
	if err != nil {
		return func() {}
	}
	own := *a
	own.packet = &quic.Transport{Conn: socket}
	own.early(listenerDoQ, "doq", wire)
	socket.Close()
	return func() { own.packet.Close() }
}

// stopped opens a QUIC connection, sends complete requests and stops every answer.
func (a *attacker) stopped(listener, alpn string, request func(*quic.Conn) (stop func(), err error)) func() {
	server, err := net.ResolveUDPAddr("udp", a.addresses[listener+"/udp"])
	if err != nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := a.packet.Dial(ctx, server, a.Client().Config(alpn), nil)
	if err != nil {
		return func() {}
	}
	for range 20 {
		if stop, err := request(conn); err == nil {
			stop()
		}
	}
	return func() { _ = conn.CloseWithError(0, "") }
}

// stoppedQueries stops the answers of DoQ, half of them before the end of the query.
func (a *attacker) stoppedQueries() func() {
	return a.stopped(listenerDoQ, "doq", func(conn *quic.Conn) (func(), error) {
		stream, err := conn.OpenStream()
		if err != nil {
			return nil, err
		}
		_, _ = stream.Write(a.query)
		if a.random.IntN(2) == 0 {
			return func() { stream.CancelWrite(early.DoQRequestCancelled); stream.CancelRead(early.DoQRequestCancelled) }, nil
		}
		_ = stream.Close()
		return func() { stream.CancelRead(early.DoQRequestCancelled) }, nil
	})
}

// stoppedRequests stops the responses of HTTP/3.
func (a *attacker) stoppedRequests() func() {
	var requests *http3.ClientConn
	return a.stopped(listenerH3, http3.NextProtoH3, func(conn *quic.Conn) (func(), error) {
		if requests == nil {
			requests = new(http3.Transport).NewClientConn(conn)
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		stream, err := requests.OpenRequestStream(ctx)
		if err != nil {
			return nil, err
		}
		request, err := http.NewRequest(http.MethodGet, "https://"+testHost+"/", nil)
		if err == nil {
			err = stream.SendRequestHeader(request)
		}
		return func() { stream.CancelRead(0x10c); stream.CancelWrite(0x10c) }, err // H3_REQUEST_CANCELLED
	})
}

// Frames of HTTP/2 (RFC 9113, section 6).
const (
	h2Data         = 0
	h2Headers      = 1
	h2Reset        = 3
	h2Settings     = 4
	h2Ping         = 6
	h2WindowUpdate = 8
	h2Continuation = 9
)

const h2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// h2Request is the header of GET https://www.example.org/ in HPACK, with the static table.
var h2Request = append([]byte{0x82, 0x87, 0x84, 0x41, byte(len(testHost))}, testHost...)

// h2Frames returns the preface, an empty SETTINGS frame, and the frames that more adds.
func h2Frames(more func(frame func(kind, flags byte, stream uint32, payload ...byte))) []byte {
	wire := []byte(h2Preface)
	frame := func(kind, flags byte, stream uint32, payload ...byte) {
		wire = append(wire, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
		wire = append(binary.BigEndian.AppendUint32(wire, stream), payload...)
	}
	frame(h2Settings, 0, 0)
	more(frame)
	return wire
}

type h2Frame = func(kind, flags byte, stream uint32, payload ...byte)

// h2Attacks contains the data that attackers send on HTTP/2 connections.
var h2Attacks = [][]byte{
	h2Frames(func(frame h2Frame) { // requests that are reset immediately (CVE-2023-44487)
		for n := uint32(1); n < 200; n += 2 {
			frame(h2Headers, 5, n, h2Request...)
			frame(h2Reset, 0, n, 0, 0, 0, 8)
		}
	}),
	h2Frames(func(frame h2Frame) { // header fields without end (CVE-2024-27316)
		frame(h2Headers, 1, 1, h2Request...)
		for range 200 {
			frame(h2Continuation, 0, 1, 0x40, 1, 'a', 1, 'b')
		}
	}),
	h2Frames(func(frame h2Frame) { // frames that must be acknowledged (CVE-2019-9512, CVE-2019-9515)
		for range 500 {
			frame(h2Ping, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
			frame(h2Settings, 0, 0)
		}
	}),
	h2Frames(func(frame h2Frame) { // flow-control windows of stream and connection that overflow
		frame(h2Headers, 5, 1, h2Request...)
		frame(h2WindowUpdate, 0, 1, 0x7f, 0xff, 0xff, 0xff)
		frame(h2WindowUpdate, 0, 0, 0x7f, 0xff, 0xff, 0xff)
	}),
	h2Frames(func(frame h2Frame) { // a window of 0: 100 responses wait (CVE-2019-9517)
		frame(h2Settings, 0, 0, 0, 4, 0, 0, 0, 0)
		for n := uint32(1); n < 200; n += 2 {
			frame(h2Headers, 5, n, h2Request...)
		}
	}),
	h2Frames(func(frame h2Frame) { // empty DATA frames of a request that does not end (CVE-2019-9518)
		frame(h2Headers, 4, 1, h2Request...)
		for range 500 {
			frame(h2Data, 0, 1)
		}
	}),
}

var hello = []byte{22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3} // announces 16 kB

var hostiles = []hostile{
	{"https, nothing", 11, func(a *attacker) func() { return a.stream(a.addresses["https/tcp"], nil) }},
	{"https, noise", 11, func(a *attacker) func() { return a.stream(a.addresses["https/tcp"], a.noise(500)) }},
	{"https, half a hello", 11, func(a *attacker) func() { return a.stream(a.addresses["https/tcp"], hello) }},
	{"dot, half a hello", 11, func(a *attacker) func() { return a.stream(a.dot, hello) }},
	{"tcp, a length and nothing", 11, func(a *attacker) func() { return a.stream(a.addresses["dns/tcp"], []byte{0xff, 0xff, 0}) }},
	{"doq, noise for an Initial", 11, func(a *attacker) func() {
		wire := append([]byte{0xc3, 0, 0, 0, 1, 8}, a.noise(1194)...)
		if conn, err := net.Dial("udp", a.addresses["doq/udp"]); err == nil {
			_, _ = conn.Write(wire)
			conn.Close()
		}
		return func() {}
	}},
	{"https, half a request", 3, func(a *attacker) func() {
		return a.secured(a.addresses["https/tcp"], "http/1.1", []byte("POST /dns-query HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"))
	}},
	{"h2, noise for frames", 3, func(a *attacker) func() {
		return a.secured(a.addresses["https/tcp"], "h2", append([]byte(h2Preface), a.noise(300)...))
	}},
	{"dot, a length and nothing", 3, func(a *attacker) func() { return a.secured(a.dot, "dot", []byte{0xff, 0xff}) }},
	{"doq, streams without end", 3, func(a *attacker) func() { return a.packets(listenerDoQ, "doq", []byte{0xff}) }},
	{"h3, headers without end", 3, func(a *attacker) func() { return a.packets(listenerH3, "h3", []byte{0x01, 0x7f}) }},
	{"h2, frames that cost", 6, func(a *attacker) func() {
		return a.secured(a.addresses["https/tcp"], "h2", h2Attacks[a.random.IntN(len(h2Attacks))])
	}},
	{"doq, answers that are stopped", 3, (*attacker).stoppedQueries},
	{"h3, responses that are stopped", 3, (*attacker).stoppedRequests},
	{"doq, early data of two queries", 2, func(a *attacker) func() {
		return a.early(listenerDoQ, "doq", append(slices.Clone(a.query), a.query...))
	}},
	{"doq, early data of half a query", 1, func(a *attacker) func() { return a.early(listenerDoQ, "doq", a.query[:9]) }},
	{"h3, noise for early data", 2, func(a *attacker) func() { return a.early(listenerH3, "h3", a.noise(200)) }},
	{"doq, early data and then silence", 2, func(a *attacker) func() { return a.unfinished(a.query) }},
}

// pick returns a random attack by weight.
func pick(random *rand.Rand) hostile {
	n := random.IntN(100)
	for _, h := range hostiles {
		if n -= h.weight; n < 0 {
			return h
		}
	}
	panic("the weights are not 100")
}

// statusBytes returns a value of /proc/self/status, e.g. VmRSS, in bytes.
func statusBytes(t *testing.T, key string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			kilobytes, _ := strconv.Atoi(strings.Fields(value)[0])
			return kilobytes << 10
		}
	}
	t.Fatal("no " + key)
	return 0
}

func init() { runtime.MemProfileRate = 0 } // its records would count as memory in use

// usageWhenIdle waits until at most this number of goroutines remains. It returns resident memory, memory in use and the
// number of goroutines. It repeats garbage collection until memory no longer decreases, since one pass leaves objects in
// pools and of finalizers.
func usageWhenIdle(t *testing.T, goroutines int) (resident, live, left int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute / 2); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
	for previous := 0; ; previous = live {
		debug.FreeOSMemory()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		resident, live = statusBytes(t, "VmRSS"), int(memory.HeapAlloc+memory.StackInuse) // #nosec G115
		if previous > 0 && float64(live) > 0.99*float64(previous) {
			return resident, live, runtime.NumGoroutine()
		}
		time.Sleep(time.Second)
	}
}

// attack opens this number of hostile connections. It returns their number by kind, and the largest number of goroutines.
func attack(s *running, connections int) (kinds map[string]int, goroutines int) {
	kinds = map[string]int{}
	var mu sync.Mutex
	var next atomic.Int64
	var workers sync.WaitGroup
	dot := s.dotAddress()
	for worker := range hostileWorkers {
		workers.Go(func() {
			a := &attacker{running: s, from: net.IPv4(127, 1, 0, byte(worker+1)), dot: dot, random: rand.New(rand.NewPCG(1, uint64(worker)))}
			a.query, a.returning = servertest.Framed(s.t, servertest.Question(testHost, dns.TypeA)), s.Client()
			socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: a.from})
			if err != nil {
				return
			}
			a.packet = &quic.Transport{Conn: socket}
			defer func() { a.packet.Close(); socket.Close() }()
			var held []func()
			for next.Add(1) <= int64(connections) {
				h := pick(a.random)
				held = append(held, h.begin(a))
				if len(held) > heldByEach {
					held[0]()
					held = held[1:]
				}
				mu.Lock()
				kinds[h.name]++
				goroutines = max(goroutines, runtime.NumGoroutine())
				mu.Unlock()
			}
			for _, end := range held {
				end()
			}
		})
	}
	workers.Wait()
	return kinds, goroutines
}

// Hostile connections use no more memory than the limits allow, leave no goroutines, and do not block other clients.
func TestHostileConnections(t *testing.T) {
	s := start(t, nil, bare)
	attack(s, hostileConnections/10) // a warm-up for permanent allocations
	before, liveBefore, goroutines := usageWhenIdle(t, 0)
	began := time.Now()
	good, err := quic.DialAddr(t.Context(), s.addresses["doq/udp"], s.Client().Config("doq"), &quic.Config{KeepAlivePeriod: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	answers := 0
	ask := func() {
		if answer := servertest.Receive(t, servertest.Send(t, good, servertest.Question(testHost, dns.TypeA))); len(answer.Answer) == 1 {
			answers++
		}
	}
	kinds, most, asked := map[string]int{}, 0, 0
	for range 45 {
		some, seen := attack(s, hostileConnections/50)
		for name, n := range some {
			kinds[name] += n
		}
		most = max(most, seen)
		asked++
		ask()
	}
	_ = good.CloseWithError(0, "")
	after, liveAfter, left := usageWhenIdle(t, goroutines)
	peak := statusBytes(t, "VmHWM")
	fmt.Printf("%d connections of %d kinds, %.0f s: resident %.1f MB before, %.1f MB after, %.1f MB at most; in use %.1f MB before, "+
		"%.1f MB after; goroutines %d before, %d after, %d at most; %d of %d good queries answered\n",
		hostileConnections, len(kinds), time.Since(began).Seconds(), float64(before)/1e6, float64(after)/1e6, float64(peak)/1e6,
		float64(liveBefore)/1e6, float64(liveAfter)/1e6, goroutines, left, most, answers, asked)
	if answers != asked {
		t.Errorf("%d of %d good queries answered", answers, asked)
	}
	if left > goroutines {
		t.Errorf("%d goroutines, %d before", left, goroutines)
	}
	if float64(after) > 1.1*float64(before) || peak > peakBytes {
		t.Errorf("%d bytes, %d before, %d at most", after, before, peak)
	}
}
