// Package box implements a plugin that makes the server a resolver of an emulated Internet. It caches answers, filters names
// and limits the rate of queries. It reports every answer with its source and processing time, as ground truth.
package box

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"crosslayer.example/emulation/internal/jsonl"
	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/coredns/plugin"
	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/miekg/dns"
)

var log = clog.NewWithPlugin(pluginName)

// Sources of an answer.
const (
	sourceHit      = "hit"      // the cache
	sourceMiss     = "miss"     // the authoritative server
	sourceFiltered = "filtered" // the resolver's own list of names
	sourceLimited  = "limited"  // none: the query exceeds the rate limit
	sourceLocal    = "local"    // the server itself, without a cache
	sourceStop     = "stop"     // none: the operator asks the client to stop
)

// silence is how long a query over HTTP or QUIC stays open without an answer. The end of its stream would show the client
// that no answer follows.
const silence = time.Minute

// answer is a line of the file `truth`: one query with its answer, or without one.
type answer struct {
	Event     string  `json:"event"`
	Time      int64   `json:"time_ns"`
	Done      int64   `json:"done_ns"`
	Resolver  string  `json:"resolver"`
	Site      string  `json:"site"`
	Transport string  `json:"transport"`
	Remote    string  `json:"remote"`
	Name      string  `json:"name"`
	Type      string  `json:"type"`
	Rcode     string  `json:"rcode"` // empty without an answer
	Source    string  `json:"source"`
	OwnMs     float64 `json:"own_ms"`
	Resumed   bool    `json:"resumed"`
	EarlyData bool    `json:"early_data"`
}

// Box is the handler of the plugin.
type Box struct {
	Next plugin.Handler
	options
	truth *jsonl.Writer
	rate  *bucket // nil without a limit
	cache *cache  // nil without a cache

	exceeded atomic.Int64 // queries that exceeded the rate
	served   atomic.Int64 // all queries, if the operator asks clients to stop after stopAfter of them
}

// Name implements the plugin.Handler interface.
func (b *Box) Name() string { return pluginName }

// ServeDNS implements the plugin.Handler interface.
func (b *Box) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	from := early.OriginAt(ctx, w)
	source := sourceLocal
	report := func(rcode string) {
		now := from.Arrival.Add(time.Since(from.Arrival))
		q := r.Question[0]
		b.truth.Write(answer{
			Event: "answer", Time: from.Arrival.UnixNano(), Done: now.UnixNano(), Resolver: b.resolver, Site: b.site,
			Transport: from.Listener, Remote: from.Remote, Name: q.Name, Type: dns.Type(q.Qtype).String(), Rcode: rcode,
			Source: source, OwnMs: now.Sub(from.Arrival).Seconds() * 1e3, Resumed: from.Resumed,
			EarlyData: !from.HandshakeComplete,
		})
	}
	rw := &reporter{ResponseWriter: w, report: report}
	switch {
	case b.stopAnswer != "" && b.served.Add(1) > b.stopAfter:
		source = sourceStop
		return b.askToStop(rw, r, from)
	case b.rate != nil && !b.rate.take(time.Now()):
		source = sourceLimited
		return b.limit(ctx, rw, r, from)
	case slices.ContainsFunc(b.filter, func(zone string) bool { return dns.IsSubDomain(zone, r.Question[0].Name) }):
		source = sourceFiltered
		return dns.RcodeSuccess, rw.WriteMsg(new(dns.Msg).SetRcode(r, dns.RcodeNameError))
	case asksForSite(r.Question[0]):
		m := new(dns.Msg).SetReply(r)
		header := dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassCHAOS}
		m.Answer = []dns.RR{&dns.TXT{Hdr: header, Txt: []string{b.site}}}
		return dns.RcodeSuccess, rw.WriteMsg(m)
	}
	if b.cache != nil {
		if kept := b.cache.get(r, time.Now()); kept != nil {
			source = sourceHit
			b.own.wait(true)
			return dns.RcodeSuccess, rw.WriteMsg(kept)
		}
		source = sourceMiss
		b.own.wait(false)
		rw.keep = b.cache.put
	}
	rcode, err := plugin.NextOrFailure(b.Name(), b.Next, ctx, rw, r)
	if !plugin.ClientWrite(rcode) {
		// Written here and not by the server, so that failures are reported too.
		if writeErr := rw.WriteMsg(new(dns.Msg).SetRcode(r, rcode)); err == nil {
			err = writeErr
		}
		rcode = dns.RcodeSuccess
	}
	return rcode, err
}

// asksForSite reports whether a query asks for the identity of the server (RFC 4892).
func asksForSite(q dns.Question) bool {
	name := dns.CanonicalName(q.Name)
	return q.Qclass == dns.ClassCHAOS && q.Qtype == dns.TypeTXT && (name == "id.server." || name == "hostname.bind.")
}

// limitAnswerNow returns the kind of answer to a query that exceeds the rate. With limitEscalate, the queries that one second
// allows are answered with 503, as many further ones with REFUSED, and all later ones not at all.
func (b *Box) limitAnswerNow() string {
	if b.limitAnswer != limitEscalate {
		return b.limitAnswer
	}
	switch step := float64(b.exceeded.Add(1)-1) / b.options.rate; {
	case step < 1:
		return limit503
	case step < 2:
		return limitRefused
	}
	return limitSilence
}

// limit answers a query that exceeds the rate.
func (b *Box) limit(ctx context.Context, w *reporter, r *dns.Msg, from early.Origin) (int, error) {
	switch how := b.limitAnswerNow(); {
	case how == limitSilence:
		w.report("")
		if early.IsEncrypted(ctx) && from.Listener != "dot" {
			select {
			case <-ctx.Done():
			case <-time.After(silence):
			}
		}
		return dns.RcodeSuccess, nil
	case how == limit503 && from.SetStatus != nil:
		from.SetStatus(http.StatusServiceUnavailable)
		w.report("")
		return dns.RcodeSuccess, nil
	}
	return dns.RcodeSuccess, w.WriteMsg(new(dns.Msg).SetRcode(r, dns.RcodeRefused))
}

// askToStop answers that the client must stop: over HTTP with the configured status, else with REFUSED. With stopProhibited
// it answers REFUSED with an Extended DNS Error on every transport.
func (b *Box) askToStop(w *reporter, r *dns.Msg, from early.Origin) (int, error) {
	if status, err := strconv.Atoi(b.stopAnswer); err == nil && from.SetStatus != nil {
		from.SetStatus(status)
		w.report("")
		return dns.RcodeSuccess, nil
	}
	m := new(dns.Msg).SetRcode(r, dns.RcodeRefused)
	if b.stopAnswer == stopProhibited {
		m.SetEdns0(dns.DefaultMsgSize, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeProhibited})
	}
	return dns.RcodeSuccess, w.WriteMsg(m)
}

// reporter is a ResponseWriter that reports each answer before it writes it.
type reporter struct {
	dns.ResponseWriter
	report func(rcode string)
	keep   func(m *dns.Msg, now time.Time) // puts the answer into the cache; nil if it is not cached
}

// WriteMsg implements the dns.ResponseWriter interface.
func (w *reporter) WriteMsg(m *dns.Msg) error {
	if w.keep != nil {
		m.Authoritative, m.RecursionAvailable = false, true
		w.keep(m, time.Now())
	}
	w.report(dns.RcodeToString[m.Rcode])
	return w.ResponseWriter.WriteMsg(m)
}

// bucket is a token bucket: it allows perSecond queries a second, and bursts of as many.
type bucket struct {
	perSecond float64

	mu   sync.Mutex
	held float64
	at   time.Time
}

func (b *bucket) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at.IsZero() {
		b.held = b.perSecond
	} else {
		b.held = min(b.perSecond, b.held+now.Sub(b.at).Seconds()*b.perSecond)
	}
	b.at = now
	if b.held < 1 {
		return false
	}
	b.held--
	return true
}
