//go:build !race

package stub

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// maxInFlight queries use less than 100 MB over UDP, TCP and TLS. Over HTTP/2 and QUIC they use less than 200 MB, because a
// second goroutine calls the library. The race detector would make stacks larger.
func TestMemoryOfQueriesInFlight(t *testing.T) {
	const first, second = 500, 2500 // open queries at the two measurements; the memory of the connection cancels out
	eachScheme(t, []string{"udp", "tcp", "tls", "https", "quic"}, func(t *testing.T, s *server, c credentials) {
		var waiting atomic.Int32
		s.answer = func([]byte) []byte { waiting.Add(1); return nil }
		r := startStub(t, s.start().url(), c, "--timeout", "30s", "--udp-retransmit", "30s")
		wire := pack(t, question("www.example.org", dns.TypeA))
		ask := func(upTo int) int {
			for range upTo - len(r.slots) {
				go r.answer(arrival{wire: wire, time: time.Now(), protocol: "udp"})
			}
			until(t, "all queries to be in flight", func() bool { return len(r.slots) == upTo && waiting.Load() > 0 })
			time.Sleep(300 * time.Millisecond) // until each query waits for its answer
			return memory()
		}
		before := ask(first)
		taken := (ask(second) - before) / (second - first)
		t.Logf("%s: %d bytes a query", s.scheme, taken)
		most := 100_000_000 / maxInFlight
		if s.scheme == "https" || s.scheme == "quic" {
			most *= 2
		}
		if taken > most {
			t.Errorf("%d bytes a query, more than %d", taken, most)
		}
	})
}

// memory returns the size of heap and stacks of this process, bytes.
func memory() int {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc + stats.StackInuse)
}
