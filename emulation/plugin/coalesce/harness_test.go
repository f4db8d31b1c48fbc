package coalesce

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/tls"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

const testHost = "www.example.org"

func TestMain(m *testing.M) {
	dnsserver.Directives = []string{"tls", "bind", "errors", pluginName, "acknowledge", "file"}
	plugin.Register("acknowledge", func(c *caddy.Controller) error {
		dnsserver.GetConfig(c).AddPlugin(acknowledge)
		return nil
	})
	dnsserver.Quiet = true
	caddy.Quiet = true
	os.Exit(m.Run())
}

// acknowledge is a plugin that answers NOTIFY, which file drops, and leaves the rest to the next.
func acknowledge(next plugin.Handler) plugin.Handler {
	return plugin.HandlerFunc(func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		if r.Opcode != dns.OpcodeNotify {
			return next.ServeDNS(ctx, w, r)
		}
		return dns.RcodeSuccess, w.WriteMsg(new(dns.Msg).SetReply(r))
	})
}

// running is a whole CoreDNS instance with the plugin, and what tests need to talk to it.
type running struct {
	t       *testing.T
	folder  string
	roots   *x509.CertPool
	control net.Conn
	answers *bufio.Reader
	// addresses by listener and network, e.g. "h3/udp", "dns/tcp"
	addresses map[string]string
}

// bare is a second server block that only shares the ticket keys.
const bare = `
tls://.:0 {
	bind 127.0.0.2
	tls cert.pem key.pem
	coalesce
	file zone .
}
`

// start runs a server on loopback; properties replace or add to those of the plugin's block.
func start(t *testing.T, properties map[string]string, blocks string) *running {
	t.Helper()
	s := &running{t: t, folder: t.TempDir(), roots: x509.NewCertPool(), addresses: map[string]string{}}
	s.writeCertificate()
	s.write("zone", "$ORIGIN .\n@ 300 IN SOA ns. mail. 1 3600 600 86400 300\n@ 300 IN NS ns.\n"+
		testHost+". 300 IN A 192.0.2.1\nlong.example.org. 300 IN TXT "+strings.Repeat(`"`+strings.Repeat("x", 200)+`" `, 20)+"\n")
	s.write("sites/page/body/0", "gzipped, so to speak")
	s.write("sites/page/manifest.json", `{"page": "page", "host": "www.example.org", "aliases": ["alias.example.org"], "resources": [
		{"path": "/", "file": "body/0", "content_type": "text/html; charset=utf-8", "content_encoding": "gzip", "wire_bytes": 20},
		{"path": "/elsewhere", "file": "body/0", "content_type": "text/plain", "content_encoding": "", "wire_bytes": 20, "host": "cdn.example.org"}]}`)
	all := map[string]string{
		"pages": s.path("sites"), "https": "127.0.0.1:0", "h3": "127.0.0.1:0", "doq": "127.0.0.1:0",
		"control": s.path("control"), "events": s.path("events"),
	}
	for name, value := range properties {
		all[name] = value
	}
	var block strings.Builder
	for name, value := range all {
		fmt.Fprintf(&block, "\t\t%s %s\n", name, value)
	}
	corefile := ".:0 tls://.:0 {\n\tbind 127.0.0.1\n\ttls cert.pem key.pem\n\terrors\n\tcoalesce {\n" + block.String() + "\t}\n\tacknowledge\n\tfile zone .\n}\n" + blocks
	for _, name := range []string{"cert.pem", "key.pem", "zone"} {
		corefile = strings.ReplaceAll(corefile, " "+name, " "+s.path(name))
	}
	instance, err := caddy.Start(caddy.CaddyfileInput{Contents: []byte(corefile), Filepath: "Corefile", ServerTypeName: "dns"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range instance.ShutdownCallbacks() {
			t.Error(err)
		}
		if err := instance.Stop(); err != nil {
			t.Error(err)
		}
	})
	if s.control, err = net.Dial("unix", all["control"]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.control.Close() })
	s.answers = bufio.NewReader(s.control)
	var ready struct{ Listeners []listening }
	s.command(`{"command": "ready"}`, &ready)
	for _, l := range ready.Listeners {
		s.addresses[l.Listener+"/"+l.Network] = l.Address
	}
	return s
}

func (s *running) path(name string) string { return filepath.Join(s.folder, name) }

func (s *running) write(name, text string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.path(name)), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(s.path(name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *running) writeCertificate() {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: testHost},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{testHost, "alias.example.org", "cdn.example.org", "other.example.net"},
		IsCA:     true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		s.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	s.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		s.t.Fatal(err)
	}
	s.roots.AddCert(certificate)
}

// command sends one line to the control socket and decodes the answer.
func (s *running) command(line string, answer any) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.control, line); err != nil {
		s.t.Fatal(err)
	}
	text, err := s.answers.ReadBytes('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
}

// events returns all events of one kind so far.
func (s *running) events(kind string) (events []map[string]any) {
	s.t.Helper()
	text, err := os.ReadFile(s.path("events"))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		event := map[string]any{}
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		if event["event"] == kind {
			events = append(events, event)
		}
	}
	return events
}

// lastEvent returns the newest event of a kind.
func (s *running) lastEvent(kind string) map[string]any {
	s.t.Helper()
	events := s.events(kind)
	if len(events) == 0 {
		s.t.Fatalf("no %s event", kind)
	}
	return events[len(events)-1]
}

// client is a TLS client whose tickets and address-validation tokens survive connections.
type client struct {
	tls    *tls.Config
	tokens quic.TokenStore
}

func (s *running) client() client {
	return client{
		tls:    &tls.Config{RootCAs: s.roots, ServerName: testHost, ClientSessionCache: tls.NewLRUClientSessionCache(8)},
		tokens: quic.NewLRUTokenStore(8, 8),
	}
}

func (c client) config(alpn ...string) *tls.Config {
	config := c.tls.Clone()
	config.NextProtos = alpn
	return config
}

// dial opens a QUIC connection, with early data where there is a ticket for it.
func (c client) dial(t *testing.T, address, alpn string) *quic.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := quic.DialAddrEarly(ctx, address, c.config(alpn), &quic.Config{TokenStore: c.tokens})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseWithError(0, "") })
	return conn
}

// warm fetches a ticket and a token over a connection of its own.
func (c client) warm(t *testing.T, address, alpn string) {
	t.Helper()
	conn := c.dial(t, address, alpn)
	select {
	case <-conn.HandshakeComplete():
	case <-time.After(5 * time.Second):
		t.Fatal("no handshake")
	}
	eventually(t, "a ticket", func() bool {
		session, ok := c.tls.ClientSessionCache.Get(testHost)
		return ok && session != nil
	})
	_ = conn.CloseWithError(0, "")
}

// eventually waits for something that happens in another goroutine.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func question(name string, kind uint16) *dns.Msg {
	m := new(dns.Msg).SetQuestion(name+".", kind)
	m.Id = 0
	return m
}
