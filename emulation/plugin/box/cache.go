package box

import (
	"sync"
	"time"

	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/coredns/coredns/plugin/pkg/response"

	"github.com/miekg/dns"
)

// cache stores answers until their TTL expires. Its size is not limited, because an emulated Internet exists for one run.
type cache struct {
	mu   sync.Mutex
	kept map[dns.Question]entry
}

type entry struct {
	answer *dns.Msg
	at     time.Time
	ttl    time.Duration
}

// question returns the question of a message with a canonical name: the key of the cache.
func question(m *dns.Msg) dns.Question {
	q := m.Question[0]
	return dns.Question{Name: dns.CanonicalName(q.Name), Qtype: q.Qtype, Qclass: q.Qclass}
}

// get returns the cached reply to a query, with remaining TTLs; nil for a miss.
func (c *cache) get(r *dns.Msg, now time.Time) *dns.Msg {
	c.mu.Lock()
	kept, ok := c.kept[question(r)]
	c.mu.Unlock()
	age := now.Sub(kept.at)
	if !ok || age >= kept.ttl {
		return nil
	}
	m := kept.answer.Copy()
	rcode := m.Rcode
	m.SetReply(r) // the ID, and the question as this client spells it
	m.Rcode, m.RecursionAvailable = rcode, true
	for _, section := range [][]dns.RR{m.Answer, m.Ns} {
		for _, record := range section {
			record.Header().Ttl -= uint32(age.Seconds()) // #nosec G115 -- less than the TTL
		}
	}
	if opt := r.IsEdns0(); opt != nil {
		m.SetEdns0(opt.UDPSize(), opt.Do())
	}
	return m
}

// put stores a positive or negative answer. It does not store failures and truncated answers.
func (c *cache) put(m *dns.Msg, now time.Time) {
	kind, _ := response.Typify(m, now.UTC())
	if m.Truncated || len(m.Question) != 1 || (kind != response.NoError && kind != response.NameError && kind != response.NoData) {
		return
	}
	kept := m.Copy()
	early.RemoveOPT(kept)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept[question(m)] = entry{kept, now, dnsutil.MinimalTTL(m, kind)}
}
