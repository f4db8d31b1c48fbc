package coalesce

import (
	"context"
	"errors"
	"testing"

	"crosslayer.example/emulation/internal/servertest"
	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/test"
	dnsrequest "github.com/coredns/coredns/request"

	"github.com/miekg/dns"
)

// lastMessage records the messages that are written.
type lastMessage struct {
	test.ResponseWriter
	written []*dns.Msg
}

func (k *lastMessage) WriteMsg(m *dns.Msg) error {
	k.written = append(k.written, m)
	return nil
}

func (k *lastMessage) Write(wire []byte) (int, error) {
	m := &dns.Msg{Compress: true}
	k.written = append(k.written, m)
	return len(wire), m.Unpack(wire)
}

func TestPadding(t *testing.T) {
	answers := plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		return dns.RcodeSuccess, w.WriteMsg(new(dns.Msg).SetReply(r))
	})
	withOPT := plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		return dns.RcodeSuccess, w.WriteMsg(new(dns.Msg).SetReply(r).SetEdns0(4096, false))
	})
	long := plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		m := new(dns.Msg).SetReply(r)
		for range 60 {
			m.Answer = append(m.Answer, test.A(r.Question[0].Name+" 1 IN A 192.0.2.1"))
		}
		m.Compress = true
		return dns.RcodeSuccess, w.WriteMsg(m)
	})
	refuses := plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		return dns.RcodeRefused, nil
	})
	for _, c := range []struct {
		name      string
		next      plugin.Handler
		encrypted bool
		query     *dns.Msg
		want      bool
	}{
		{"padded query", answers, true, servertest.Padded(servertest.Question(testHost, dns.TypeA)), true},
		{"answer with OPT", withOPT, true, servertest.Padded(servertest.Question(testHost, dns.TypeA)), true},
		{"long answer", long, true, servertest.Padded(servertest.Question(testHost, dns.TypeA)), true},
		{"refusal", refuses, true, servertest.Padded(servertest.Question(testHost, dns.TypeA)), true},
		{"query without padding", answers, true, servertest.Question(testHost, dns.TypeA).SetEdns0(1232, false), false},
		{"query without EDNS", answers, true, servertest.Question(testHost, dns.TypeA), false},
		{"in the clear", answers, false, servertest.Padded(servertest.Question(testHost, dns.TypeA)), false},
	} {
		ctx := context.Background()
		if c.encrypted {
			ctx = early.WithOrigin(ctx, early.Origin{Listener: listenerDoQ})
		}
		w := new(lastMessage)
		handler := Coalesce{Next: c.next, shared: &shared{events: newEventLog()}}
		if rcode, err := handler.ServeDNS(ctx, w, c.query); !plugin.ClientWrite(rcode) || err != nil || len(w.written) != 1 {
			t.Errorf("%s: rcode %d, error %v, %d answers", c.name, rcode, err, len(w.written))
			continue
		}
		wire, err := w.written[0].Pack()
		if err != nil {
			t.Error(err)
		}
		if got := len(wire)%early.PaddingBlock == 0; got != c.want {
			t.Errorf("%s: %d bytes", c.name, len(wire))
		}
	}
}

func TestAnswersInTheClearAreCompressedWhereTheyFit(t *testing.T) {
	for _, c := range []struct {
		name      string
		encrypted bool
		answers   int
		bytes     int
	}{
		// Header, question, OPT record, and in the answer a pointer of 2 bytes or the name.
		{"in the clear", false, 1, 12 + len(testHost) + 2 + 4 + 11 + 16},
		{"encrypted", true, 1, 12 + len(testHost) + 2 + 4 + 11 + len(testHost) + 2 + 10 + 4},
		{"too large", false, 100, 0},
	} {
		next := plugin.HandlerFunc(func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
			m := new(dns.Msg).SetReply(r)
			for range c.answers {
				m.Answer = append(m.Answer, test.A(r.Question[0].Name+" 1 IN A 192.0.2.1"))
			}
			return dns.RcodeSuccess, w.WriteMsg(m)
		})
		query := servertest.Question(testHost, dns.TypeA).SetEdns0(1232, false)
		ctx := context.Background()
		if c.encrypted {
			ctx = early.WithOrigin(ctx, early.Origin{Listener: listenerDoQ})
		}
		w := new(lastMessage)
		_, err := Coalesce{Next: next, shared: &shared{events: newEventLog()}}.ServeDNS(ctx, dnsrequest.NewScrubWriter(query, w), query)
		if err != nil || len(w.written) != 1 {
			t.Errorf("%s: error %v, %d answers", c.name, err, len(w.written))
			continue
		}
		if c.bytes == 0 {
			if !w.written[0].Truncated {
				t.Errorf("%s: not truncated", c.name)
			}
		} else if got := w.written[0].Len(); got != c.bytes {
			t.Errorf("%s: %d bytes, not %d", c.name, got, c.bytes)
		}
	}
}

func TestErrorsOfTheChainAreAnswered(t *testing.T) {
	broken := errors.New("broken")
	fails := plugin.HandlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		return dns.RcodeServerFailure, broken
	})
	w := new(lastMessage)
	events := newEventLog()
	_, err := Coalesce{Next: fails, shared: &shared{events: events}}.ServeDNS(context.Background(), w, servertest.Question(testHost, dns.TypeA))
	if !errors.Is(err, broken) || len(w.written) != 1 || w.written[0].Rcode != dns.RcodeServerFailure {
		t.Errorf("error %v, answers %v", err, w.written)
	}
	if n := events.totals()["queries"]["udp"]; n != 1 {
		t.Errorf("%d events", n)
	}
}
