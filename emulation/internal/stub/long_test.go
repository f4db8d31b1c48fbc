//go:build long

package stub

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	random "math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

const (
	hostileQueries  = 5_000 // per transport
	hostileClients  = 32
	hostileTimeout  = 500 * time.Millisecond
	stuckMost       = 20              // connections on which the upstream makes the HTTP/2 client of Go 1.26 deadlock
	stuckGoroutines = hostileClients  // that each of them may keep: one per open query
	stuckBytes      = 2 << 20         // that each of them may keep
	hostilePeak     = 250 << 20       // bytes of this process, including the upstreams
	hostileSlack    = 1 * time.Second // time beyond the timeout of a query, with its retry
)

// hostileUpstream answers half of the queries correctly. For others it violates the protocol of its transport.
type hostileUpstream struct {
	*server
	well  func(query []byte) []byte
	tame  atomic.Bool
	stuck atomic.Int32

	mu    sync.Mutex
	kinds map[string]int
}

// choose returns -1 for correct behaviour, or the index of a random name, which it counts.
func (h *hostileUpstream) choose(names ...string) int {
	if h.tame.Load() || random.IntN(2) == 0 {
		return -1
	}
	n := random.IntN(len(names))
	h.mu.Lock()
	h.kinds[h.scheme+", "+names[n]]++
	h.mu.Unlock()
	return n
}

func newHostileUpstream(t *testing.T, scheme string, c credentials) *hostileUpstream {
	h := &hostileUpstream{server: newServer(t, scheme, c), kinds: map[string]int{}}
	h.well = h.server.answer
	h.answer = h.message
	switch scheme {
	case "quic":
		h.stream = h.onStream
	case "https", "h3":
		h.respond = h.onRequest
	case "tcp", "tls":
		h.hangUp = func() bool { return h.choose("closed") == 0 && random.IntN(4) == 0 }
	}
	if scheme == "quic" || scheme == "h3" || scheme == "tls" {
		h.config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if h.choose("ticket and early data refused") < 0 {
				return nil, nil
			}
			config := h.config.Clone()
			config.GetConfigForClient = nil
			config.NextProtos = map[string][]string{"quic": {"doq"}, "h3": {"h3"}}[scheme]
			var key [32]byte
			_, _ = rand.Read(key[:]) // never fails
			config.SetSessionTicketKeys([][32]byte{key})
			return config, nil
		}
	}
	return h
}

// message returns the answer to a query: correct, wrong, or none.
func (h *hostileUpstream) message(query []byte) []byte {
	good := h.well(query)
	switch h.choose("silence", "noise", "half", "another ID", "the query", "64 kB", "nothing") {
	case 0:
		return nil
	case 1:
		wire := make([]byte, 200)
		_, _ = rand.Read(wire)
		return wire
	case 2:
		return good[:len(good)/2]
	case 3:
		good[0]++
		return good
	case 4:
		return query
	case 5:
		return make([]byte, maxMessageBytes)
	case 6:
		return []byte{}
	}
	return good
}

func (h *hostileUpstream) onStream(conn *quic.Conn, stream *quic.Stream) {
	kind := h.choose("message", "reset at once", "stopped at once", "reset behind half", "no end", "two answers", "connection closed", "silence")
	switch kind {
	case 1:
		stream.CancelWrite(5)
		return
	case 2:
		stream.CancelRead(5)
		stream.CancelWrite(3)
		return
	case 6:
		_ = conn.CloseWithError(quic.ApplicationErrorCode(random.IntN(6)), strings.Repeat("x", 500))
		return
	}
	query, err := readMessage(stream)
	if err != nil {
		return
	}
	good := framed(h.well(query))
	switch kind {
	case 0:
		if wire := h.message(query); wire != nil {
			_, _ = stream.Write(framed(wire))
		}
	case 3:
		_, _ = stream.Write(good[:len(good)/2])
		stream.CancelWrite(5)
		return
	case 4:
		_, _ = stream.Write(good)
		return
	case 5:
		_, _ = stream.Write(append(good, good...))
	case 7:
		return
	default:
		_, _ = stream.Write(good)
	}
	_ = stream.Close()
}

func (h *hostileUpstream) onRequest(w http.ResponseWriter, r *http.Request) {
	query := queryOf(h.t, r)
	good := h.well(query)
	w.Header().Set("Content-Type", dnsMessage)
	switch h.choose("message", "aborted", "status", "interim responses", "long header", "half a body", "body without end", "silence", "connection closed") {
	case 0:
		good = h.message(query)
	case 1:
		panic(http.ErrAbortHandler)
	case 2:
		w.WriteHeader([]int{204, 304, 400, 421, 425, 500, 503}[random.IntN(7)])
		return
	case 3:
		for range 50 {
			w.WriteHeader(http.StatusEarlyHints)
		}
	case 4:
		w.Header().Set("X", strings.Repeat("x", 2*maxHeaderBytes))
	case 5:
		w.Header().Set("Content-Length", fmt.Sprint(len(good)))
		_, _ = w.Write(good[:len(good)/2])
		panic(http.ErrAbortHandler)
	case 6:
		for chunk := make([]byte, 1<<12); r.Context().Err() == nil; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
		return
	case 7:
		<-r.Context().Done()
		return
	case 8:
		if hangUp, ok := r.Context().Value(connKey{}).(func()); ok {
			hangUp()
			return
		}
	}
	_, _ = w.Write(good)
}

// onFrames answers a request of HTTP/2 with invalid or unusual frames.
func (h *hostileUpstream) onFrames(conn net.Conn, stream uint32) error {
	interim := append([]byte{0x08, 3}, "103"...) // :status
	var wire []byte
	switch h.choose("window overflows", "reset", "GOAWAY", "settings", "pings", "continuations", "push", "data before headers",
		"noise for fields", "a frame too long", "silence", "interim responses", "data beyond the window", "data on stream 0") {
	case 0:
		if h.stuck.Add(1) > stuckMost {
			return errors.New("enough of these")
		}
		wire = frame(h2WindowUpdate, 0, stream, 0x7f, 0xff, 0xff, 0xff)
	case 1:
		wire = frame(h2Reset, 0, stream, 0, 0, 0, byte(random.IntN(14)))
	case 2:
		wire = frame(h2GoAway, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(random.IntN(14)))
	case 3:
		wire = bytes.Repeat(frame(h2Settings, 0, 0), 1000)
	case 4:
		wire = bytes.Repeat(frame(h2Ping, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), 1000)
	case 5:
		wire = append(frame(h2Headers, 0, stream, 0x88), bytes.Repeat(frame(h2Continuation, 0, stream, 0x40, 1, 'a', 1, 'b'), 10_000)...)
	case 6:
		wire = frame(h2PushPromise, 4, stream, 0, 0, 0, 2, 0x82)
	case 7:
		wire = frame(h2Data, 0, stream, 1, 2, 3)
	case 8:
		wire = frame(h2Headers, 4, stream, 0xff, 0xff, 0xff, 0xff, 0xff)
	case 9:
		wire = frame(h2Data, 0, stream, make([]byte, 1<<20)...)
	case 10:
		return nil
	case 11:
		wire = bytes.Repeat(frame(h2Headers, 4, stream, interim...), 1000)
	case 12:
		wire = append(frame(h2Headers, 4, stream, 0x88), bytes.Repeat(frame(h2Data, 0, stream, make([]byte, 1<<14)...), 400)...)
	case 13:
		wire = frame(h2Data, 0, 0, 1)
	default:
		return errors.New("closed")
	}
	_, err := conn.Write(wire)
	return err
}

// startOdd starts the server. Over HTTP/2, onFrames serves half of its connections.
func (h *hostileUpstream) startOdd(t *testing.T) {
	if h.scheme != "https" {
		h.start()
		return
	}
	plain, err := net.Listen("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	h.address = plain.Addr().String()
	web := &http.Server{Handler: http.HandlerFunc(h.serveHTTP), TLSConfig: h.config.Clone(), ErrorLog: quiet}
	listener := &sometimesOdd{plain, func() bool { return !h.tame.Load() && random.IntN(2) == 0 }, func(socket net.Conn) {
		serveFrames(socket, h.config, nil, h.onFrames)
	}}
	go func() { _ = web.ServeTLS(listener, "", "") }()
	h.stop = func() { web.Close() }
	t.Cleanup(h.stop)
}

// bytesInUse waits until the number of goroutines no longer decreases. It returns the size of heap and stacks, and the number
// of goroutines.
func bytesInUse() (bytes, goroutines int) {
	goroutines = runtime.NumGoroutine()
	for deadline, ended := time.Now().Add(30*time.Second), time.Now(); time.Since(ended) < 3*time.Second && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		if now := runtime.NumGoroutine(); now < goroutines {
			goroutines, ended = now, time.Now()
		}
	}
	debug.FreeOSMemory()
	debug.FreeOSMemory() // objects in a pool survive one collection
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc + stats.StackInuse), goroutines
}

// giveUp sends a query over TCP and resets the connection before the answer.
func (r *running) giveUp(query []byte) {
	conn, err := net.DialTimeout("tcp", r.udp.LocalAddr().String(), time.Second)
	if err != nil {
		return
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_, _ = conn.Write(framed(query))
	conn.Close()
}

// With a hostile upstream on any transport, each query is answered in time, no memory or goroutines remain, and later correct
// answers are forwarded.
func TestHostileUpstreams(t *testing.T) {
	for _, scheme := range everyScheme {
		t.Run(scheme, func(t *testing.T) {
			c := newCredentials(t)
			h := newHostileUpstream(t, scheme, c)
			h.startOdd(t)
			options := []string{"--timeout", hostileTimeout.String()}
			if scheme == "quic" || scheme == "h3" {
				options = append(options, "--resumption", "early-data")
			}
			r := startStub(t, h.url(), c, options...)
			ask := func(queries int) (late, unanswered, good int) {
				var mu sync.Mutex
				var next atomic.Int64
				var clients sync.WaitGroup
				for range hostileClients {
					clients.Go(func() {
						client := &dns.Client{Net: "udp", Timeout: hostileTimeout + hostileSlack, UDPSize: dns.MaxMsgSize}
						for n := next.Add(1); n <= int64(queries); n = next.Add(1) {
							query := question(fmt.Sprintf("n%d.example.org", n), dns.TypeA)
							switch random.IntN(20) {
							case 0:
								r.giveUp(pack(t, query))
								continue
							case 1:
								r.upstream.reset(false) // so that the next connection resumes a session and sends early data
							}
							began := time.Now()
							answer, _, err := client.Exchange(query, r.udp.LocalAddr().String())
							mu.Lock()
							switch {
							case err != nil:
								unanswered++
							case time.Since(began) > hostileTimeout+hostileSlack:
								late++
							case len(answer.Answer) > 0:
								good++
							}
							mu.Unlock()
						}
					})
				}
				clients.Wait()
				return late, unanswered, good
			}
			ask(hostileQueries / 10) // a warm-up for permanent allocations
			before, goroutines := bytesInUse()
			began := time.Now()
			late, unanswered, good := ask(hostileQueries)
			took := time.Since(began)
			h.tame.Store(true)
			until(t, "a good answer", func() bool {
				answer := r.exchange("udp", question("www.example.org", dns.TypeA))
				return len(answer.Answer) == 1
			})
			r.upstream.reset(true)
			h.disconnect()
			stuck := int(min(h.stuck.Load(), stuckMost))
			after, left := bytesInUse()
			fmt.Printf("%s: %d queries, %d kinds of bad answer, %.0f s: %d good, %d late, %d without any; in use %.1f MB before, %.1f MB after; "+
				"goroutines %d before, %d after; %d connections stuck; %.1f MB at most\n", scheme, hostileQueries, len(h.kinds), took.Seconds(),
				good, late, unanswered, float64(before)/1e6, float64(after)/1e6, goroutines, left, stuck, float64(peakBytes(t))/1e6)
			if late+unanswered > 0 {
				t.Errorf("%d late, %d unanswered", late, unanswered)
			}
			if left > goroutines+stuck*stuckGoroutines {
				t.Errorf("%d goroutines, %d before", left, goroutines)
			}
			if after > before+before/10+2<<20+stuck*stuckBytes || peakBytes(t) > hostilePeak {
				t.Errorf("%d bytes, %d before, %d at most", after, before, peakBytes(t))
			}
		})
	}
}

// peakBytes returns the peak resident memory of this process.
func peakBytes(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes int
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
