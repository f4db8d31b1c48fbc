package box

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/test"

	"github.com/miekg/dns"
)

// upstream answers every name with an A record of this TTL, except names that begin with "none" or "fail". It counts queries.
type upstream struct {
	ttl   uint32
	asked int
}

func (u *upstream) Name() string { return "upstream" }

func (u *upstream) ServeDNS(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	u.asked++
	m := new(dns.Msg).SetReply(r)
	m.Authoritative = true
	name := r.Question[0].Name
	switch {
	case strings.HasPrefix(name, "fail"):
		return dns.RcodeServerFailure, nil
	case strings.HasPrefix(name, "none"):
		m.Rcode = dns.RcodeNameError
		m.Ns = []dns.RR{test.SOA("example. 300 IN SOA ns.example. host.example. 1 2 3 4 5")}
	default:
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: u.ttl}, A: net.IPv4(192, 0, 2, 1)}}
	}
	return dns.RcodeSuccess, w.WriteMsg(m)
}

// start sets up the plugin with these properties before an upstream. It returns the handler and the path of the file `truth`.
func start(t *testing.T, properties string, next *upstream) (plugin.Handler, string) {
	t.Helper()
	truth := filepath.Join(t.TempDir(), "truth.jsonl")
	c := caddy.NewTestController("dns", "box {\n truth "+truth+"\n resolver near\n site fra\n"+properties+"\n}")
	if err := setup(c); err != nil {
		t.Fatal(err)
	}
	handler := dnsserver.GetConfig(c).Plugin[0](next)
	b := handler.(*Box)
	if err := b.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.truth.Close() })
	return handler, truth
}

func ask(t *testing.T, handler plugin.Handler, name string) *dns.Msg {
	t.Helper()
	w := &writer{ResponseWriter: &test.ResponseWriter{}}
	query := new(dns.Msg).SetQuestion(name, dns.TypeA)
	if _, err := handler.ServeDNS(context.Background(), w, query); err != nil {
		t.Fatal(err)
	}
	if w.answer != nil && w.answer.Id != query.Id {
		t.Errorf("answer to query %d has ID %d", query.Id, w.answer.Id)
	}
	return w.answer
}

type writer struct {
	dns.ResponseWriter
	answer *dns.Msg
}

func (w *writer) WriteMsg(m *dns.Msg) error {
	w.answer = m
	return nil
}

func rows(t *testing.T, truth string) (sources []string) {
	t.Helper()
	text, err := os.ReadFile(truth) // #nosec G304 -- the test's own
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var row answer
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		if row.Resolver != "near" || row.Site != "fra" || row.Transport != "udp" || row.OwnMs < 0 || row.Done < row.Time {
			t.Errorf("row %+v", row)
		}
		sources = append(sources, row.Source+" "+row.Rcode)
	}
	return sources
}

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("truth %q, want %q", got, want)
	}
}

func TestCacheReportsHitsAndMisses(t *testing.T) {
	next := &upstream{ttl: 1}
	handler, truth := start(t, " cache on", next)
	first := ask(t, handler, "a.example.")
	if first.Authoritative || !first.RecursionAvailable {
		t.Error("a resolver's answer looks like an authoritative one")
	}
	if second := ask(t, handler, "A.example."); len(second.Answer) != 1 || second.Question[0].Name != "A.example." {
		t.Errorf("from the cache: %v", second)
	}
	ask(t, handler, "none.example.")
	if again := ask(t, handler, "none.example."); again.Rcode != dns.RcodeNameError {
		t.Errorf("from the cache: %v", again)
	}
	ask(t, handler, "fail.example.")
	ask(t, handler, "fail.example.")
	time.Sleep(1100 * time.Millisecond)
	ask(t, handler, "a.example.")
	equal(t, rows(t, truth), "miss NOERROR", "hit NOERROR", "miss NXDOMAIN", "hit NXDOMAIN", "miss SERVFAIL", "miss SERVFAIL", "miss NOERROR")
	if next.asked != 5 {
		t.Errorf("%d queries behind the cache, want 5", next.asked)
	}
}

func TestFilterAnswersByItself(t *testing.T) {
	next := &upstream{ttl: 300}
	handler, truth := start(t, " cache on\n filter ads.example,bad.example", next)
	if m := ask(t, handler, "x.ADS.example."); m.Rcode != dns.RcodeNameError {
		t.Errorf("filtered name: %v", m)
	}
	ask(t, handler, "goods.example.")
	equal(t, rows(t, truth), "filtered NXDOMAIN", "miss NOERROR")
}

func TestOwnTimes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.json")
	if err := os.WriteFile(file, []byte(`{"hit_ms": [20], "miss_ms": [60, 70], "seed": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	handler, _ := start(t, " cache on\n own "+file, &upstream{ttl: 300})
	for number, least := range []time.Duration{60, 20, 20} {
		began := time.Now()
		ask(t, handler, "a.example.")
		if took := time.Since(began); took < least*time.Millisecond || took > (least+40)*time.Millisecond {
			t.Errorf("query %d took %s, want %d ms", number, took, least)
		}
	}
}

func TestOwnTimesMustBeTimes(t *testing.T) {
	for _, text := range []string{`{"hit_ms": [], "miss_ms": [1]}`, `{"hit_ms": [1]}`, `{"hit_ms": [-1], "miss_ms": [1]}`, `[]`} {
		file := filepath.Join(t.TempDir(), "own.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := new(options).set("own", file); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	if err := new(options).set("own", "missing.json"); err == nil {
		t.Error("a missing file is accepted")
	}
}

func TestSite(t *testing.T) {
	handler, truth := start(t, " cache on", &upstream{ttl: 300})
	for _, name := range []string{"id.server.", "HOSTNAME.bind."} {
		w := &writer{ResponseWriter: &test.ResponseWriter{}}
		query := new(dns.Msg).SetQuestion(name, dns.TypeTXT)
		query.Question[0].Qclass = dns.ClassCHAOS
		if _, err := handler.ServeDNS(context.Background(), w, query); err != nil {
			t.Fatal(err)
		}
		if txt, ok := w.answer.Answer[0].(*dns.TXT); !ok || txt.Txt[0] != "fra" {
			t.Errorf("%s: %v", name, w.answer)
		}
	}
	equal(t, rows(t, truth), "local NOERROR", "local NOERROR")
}

func TestRateLimit(t *testing.T) {
	for limit, want := range map[string]string{"refused": "limited REFUSED", "503": "limited REFUSED", "silence": "limited "} {
		t.Run(limit, func(t *testing.T) {
			handler, truth := start(t, " rate 2\n limit "+limit, &upstream{ttl: 300})
			for range 2 {
				if m := ask(t, handler, "a.example."); m.Rcode != dns.RcodeSuccess {
					t.Errorf("below the rate: %v", m)
				}
			}
			if m := ask(t, handler, "a.example."); (m == nil) != (limit == "silence") {
				t.Errorf("above the rate: %v", m)
			}
			equal(t, rows(t, truth), "local NOERROR", "local NOERROR", want)
		})
	}
}

func TestRateLimitEscalates(t *testing.T) {
	handler, truth := start(t, " rate 2\n limit escalate", &upstream{ttl: 300})
	for range 7 {
		ask(t, handler, "a.example.")
	}
	equal(t, rows(t, truth), "local NOERROR", "local NOERROR", "limited REFUSED", "limited REFUSED", "limited REFUSED", "limited REFUSED", "limited ")
}

// Over HTTP, the listener answers 503.
func TestRateLimitOverHTTP(t *testing.T) {
	handler, _ := start(t, " rate 1\n limit 503", &upstream{ttl: 300})
	ask(t, handler, "a.example.")
	status := 0
	ctx := early.WithOrigin(context.Background(), early.Origin{Listener: "doh", Arrival: time.Now(), SetStatus: func(set int) { status = set }})
	w := &writer{ResponseWriter: &test.ResponseWriter{}}
	if _, err := handler.ServeDNS(ctx, w, new(dns.Msg).SetQuestion("a.example.", dns.TypeA)); err != nil || w.answer != nil || status != 503 {
		t.Errorf("error %v, answer %v, status %d", err, w.answer, status)
	}
}

func TestAsksToStop(t *testing.T) {
	for how, wanted := range map[string]int{"403": 403, "451": 451, "prohibited": 0} {
		handler, truth := start(t, " stop "+how+"\n stop_after 2", &upstream{ttl: 300})
		for range 3 {
			ask(t, handler, "a.example.")
		}
		refused := ask(t, handler, "a.example.")
		equal(t, rows(t, truth), "local NOERROR", "local NOERROR", "stop REFUSED", "stop REFUSED")
		if code := extendedError(refused); (code == dns.ExtendedErrorCodeProhibited) != (how == "prohibited") {
			t.Errorf("%s: extended error %d", how, code)
		}
		status := 0
		ctx := early.WithOrigin(context.Background(), early.Origin{Listener: "doh", Arrival: time.Now(), SetStatus: func(set int) { status = set }})
		w := &writer{ResponseWriter: &test.ResponseWriter{}}
		if _, err := handler.ServeDNS(ctx, w, new(dns.Msg).SetQuestion("a.example.", dns.TypeA)); err != nil || status != wanted || (w.answer == nil) != (wanted != 0) {
			t.Errorf("%s: error %v, answer %v, status %d", how, err, w.answer, status)
		}
	}
}

func extendedError(m *dns.Msg) uint16 {
	if options := m.IsEdns0(); options != nil {
		for _, option := range options.Option {
			if extended, ok := option.(*dns.EDNS0_EDE); ok {
				return extended.InfoCode
			}
		}
	}
	return 0
}

func TestSetupRefuses(t *testing.T) {
	for input, want := range map[string]string{
		"box":                                "truth names no file",
		"box {\n truth /t\n cache yes\n}":    "either on or off",
		"box {\n truth /t\n rate 0\n}":       "at least 1",
		"box {\n truth /t\n rate x\n}":       "at least 1",
		"box {\n truth /t\n limit 429\n}":    "503, refused, silence or escalate",
		"box {\n truth /t\n stop 404\n}":     "403, 451 or prohibited",
		"box {\n truth /t\n stop_after x\n}": "at least 0",
		"box {\n truth /t\n speed fast\n}":   "unknown property 'speed'",
		"box {\n truth /t\n truth /u\n}":     "given twice",
	} {
		if err := setup(caddy.NewTestController("dns", input)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", input, err, want)
		}
	}
}
