// Package servertest runs a CoreDNS instance on loopback for the tests of the plugins. It has clients for QUIC, HTTP/2 and
// HTTP/3, and a relay that delays handshakes. It does not depend on the plugins.
package servertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/bind" // plugins in the Corefiles of tests
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/tls"
	_ "github.com/coredns/coredns/plugin/transfer"
	_ "github.com/coredns/coredns/plugin/tsig"

	"github.com/miekg/dns"
)

// Host is a host name in the certificate and in the zone.
const Host = "www.example.org"

// Zone is a zone file with an address of Host and a TXT record of 4,000 bytes at long.example.org.
var Zone = "$ORIGIN .\n@ 300 IN SOA ns. mail. 1 3600 600 86400 300\n@ 300 IN NS ns.\n" +
	Host + ". 300 IN A 192.0.2.1\nlong.example.org. 300 IN TXT " + strings.Repeat(`"`+strings.Repeat("x", 200)+`" `, 20) + "\n"

// Main runs the tests. The chain of plugins is that of crosslayer-server, with the given ones in place of early and coalesce.
func Main(m *testing.M, plugins ...string) {
	dnsserver.Directives = append(append([]string{"tls", "bind", "errors"}, plugins...), "acknowledge", "transfer", "file")
	plugin.Register("acknowledge", func(c *caddy.Controller) error {
		dnsserver.GetConfig(c).AddPlugin(acknowledge)
		return nil
	})
	dnsserver.Quiet = true
	caddy.Quiet = true
	os.Exit(m.Run())
}

// starting is locked while a server starts. acknowledge waits for it, because CoreDNS accepts queries before plugins such as
// transfer are set up.
var starting sync.RWMutex

// acknowledge is a plugin that answers NOTIFY, which the plugin file drops. It passes other messages to the next plugin.
func acknowledge(next plugin.Handler) plugin.Handler {
	return plugin.HandlerFunc(func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		starting.RLock() // waits for the end of the start
		defer starting.RUnlock()
		if r.Opcode != dns.OpcodeNotify {
			return next.ServeDNS(ctx, w, r)
		}
		return dns.RcodeSuccess, w.WriteMsg(new(dns.Msg).SetReply(r))
	})
}

// Folder is a folder with a server's files: certificate, key, zone and files that a test adds.
type Folder struct {
	t     *testing.T
	path  string
	Roots *x509.CertPool

	instance *caddy.Instance
}

// NewFolder returns a folder with cert.pem, key.pem and zone.
func NewFolder(t *testing.T) *Folder {
	t.Helper()
	f := &Folder{t: t, path: t.TempDir(), Roots: x509.NewCertPool()}
	f.writeCertificate()
	f.Write("zone", Zone)
	return f
}

// Path returns the path of a file of the folder.
func (f *Folder) Path(name string) string { return filepath.Join(f.path, name) }

// Write writes a file and creates its parent folders.
func (f *Folder) Write(name, text string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(f.Path(name)), 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.Path(name), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// Start runs CoreDNS with a Corefile until the end of the test. The Corefile names files without their folder, see Input.
func (f *Folder) Start(corefile string) *caddy.Instance {
	f.t.Helper()
	starting.Lock()
	instance, err := caddy.Start(f.Input(corefile))
	starting.Unlock()
	if err != nil {
		f.t.Fatal(err)
	}
	f.instance = instance
	f.t.Cleanup(func() {
		for _, err := range f.instance.ShutdownCallbacks() {
			f.t.Error(err)
		}
		if err := f.instance.Stop(); err != nil {
			f.t.Error(err)
		}
	})
	return instance
}

// Reload reloads CoreDNS with a Corefile, as at SIGUSR1.
func (f *Folder) Reload(corefile string) (err error) {
	f.instance, err = f.instance.Restart(f.Input(corefile))
	return err
}

// NewCertificate replaces the certificate. Clients trust both.
func (f *Folder) NewCertificate() { f.writeCertificate() }

// FreePort returns an address of loopback whose port is free for TCP and UDP.
func FreePort(t *testing.T) string {
	t.Helper()
	for range 20 {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		if udp, err := net.ListenPacket("udp", tcp.Addr().String()); err == nil {
			defer udp.Close()
			return tcp.Addr().String()
		}
	}
	t.Fatal("no port")
	return ""
}

// Input returns a Corefile with full paths in place of " cert.pem", " key.pem" and " zone".
func (f *Folder) Input(corefile string) caddy.CaddyfileInput {
	for _, name := range []string{"cert.pem", "key.pem", "zone"} {
		corefile = strings.ReplaceAll(corefile, " "+name, " "+f.Path(name))
	}
	return caddy.CaddyfileInput{Contents: []byte(corefile), Filepath: "Corefile", ServerTypeName: "dns"}
}

func (f *Folder) writeCertificate() {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: Host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{Host, "alias.example.org", "cdn.example.org", "other.example.net"},
		IsCA:     true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		f.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		f.t.Fatal(err)
	}
	f.Write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	f.Write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		f.t.Fatal(err)
	}
	f.Roots.AddCert(certificate)
}
