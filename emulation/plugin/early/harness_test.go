package early

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"
)

func TestMain(m *testing.M) {
	plugin.Register("witness", func(c *caddy.Controller) error {
		dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler { return witness{next} })
		return nil
	})
	servertest.Main(m, pluginName, "tsig", "witness")
}

// witness is a plugin that records the origin of queries. For some names it behaves specially.
type witness struct{ next plugin.Handler }

var (
	seen sync.Map // Origin of the last query, by question
	asks sync.Map // number of queries (*atomic.Int32), by name
)

func asked(name string) *atomic.Int32 {
	n, _ := asks.LoadOrStore(name, new(atomic.Int32))
	return n.(*atomic.Int32)
}

func (w witness) Name() string { return "witness" }

func (w witness) ServeDNS(ctx context.Context, rw dns.ResponseWriter, r *dns.Msg) (int, error) {
	from, ours := OriginOf(ctx)
	if ours {
		asked(r.Question[0].Name).Add(1)
		seen.Store(r.Question[0].String(), from)
	}
	server := ctx.Value(dnsserver.Key{}).(*dnsserver.Server).Addr
	switch name := r.Question[0].Name; {
	case strings.HasPrefix(name, "server."):
		m := new(dns.Msg).SetReply(r)
		m.Answer = []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{server}}}
		return dns.RcodeSuccess, rw.WriteMsg(m)
	case strings.HasPrefix(name, "slow."):
		select {
		case <-ctx.Done(): // cancelled
			cancelled.Add(1)
		case <-time.After(5 * time.Second):
		}
	case strings.HasPrefix(name, "stuck."):
		time.Sleep(2 * time.Second)
	case strings.HasPrefix(name, "silent."):
		return dns.RcodeSuccess, nil
	case strings.HasPrefix(name, "careless."): // answers like a server over TCP
		m := new(dns.Msg).SetReply(r).SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{
			&dns.EDNS0_TCP_KEEPALIVE{Code: dns.EDNS0TCPKEEPALIVE, Timeout: 100}, &dns.EDNS0_PADDING{Padding: make([]byte, 7)},
		}
		return dns.RcodeSuccess, rw.WriteMsg(m)
	}
	return plugin.NextOrFailure(w.Name(), w.next, ctx, rw, r)
}

var cancelled atomic.Int32

// running is a CoreDNS instance with the plugin.
type running struct {
	*servertest.Folder
	instance *caddy.Instance
	doq      string // address
}

// start runs a server on loopback. properties are lines of the plugin's block; blocks are further server blocks.
func start(t *testing.T, properties string, blocks ...string) *running {
	t.Helper()
	s := &running{Folder: servertest.NewFolder(t)}
	s.instance = s.Start(corefile(properties) + strings.Join(blocks, ""))
	s.doq = listening(s.instance)[0].String()
	return s
}

func corefile(properties string) string {
	return ".:0 {\n\tbind 127.0.0.1\n\ttls cert.pem key.pem\n\terrors\n\tearly {\n\tdoq 127.0.0.1:0\n" + properties +
		"\n\t}\n\twitness\n\tacknowledge\n\tfile zone .\n}\n"
}

// listening returns the addresses of the instance's DoQ listeners.
func listening(instance *caddy.Instance) (addresses []addr) {
	instance.StorageMu.RLock()
	defer instance.StorageMu.RUnlock()
	for _, s := range instance.Storage[serversKey{}].([]*server) {
		addresses = append(addresses, s.listener.Addr())
	}
	return addresses
}

type addr interface{ String() string }
