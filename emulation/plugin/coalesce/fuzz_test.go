package coalesce

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"crosslayer.example/emulation/internal/servertest"
	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/coredns/core/dnsserver"

	"github.com/miekg/dns"
)

// handler returns the HTTP handler without a listener.
func handler(f *testing.F) *web {
	f.Helper()
	chain, err := early.NewChain("https://:443", []*dnsserver.Config{{Zone: "."}})
	if err != nil {
		f.Fatal(err)
	}
	body := &resource{body: []byte("abc"), header: headerFor("text/plain", "", 3)}
	return &web{
		listener: listenerHTTPS, dns: "doh", chain: chain, events: newEventLog(),
		policy: early.NewPolicy(early.DefaultOptions, early.NewTicketKeys()),
		site:   site{"www.example.org": {"/": body}},
	}
}

var statuses = []int{200, 400, 404, 405, 415, 421, 500, 501}

// Every request of DNS over HTTP has one of the known statuses. A response with 200 contains a DNS message.
func FuzzDNSOverHTTP(f *testing.F) {
	wire, err := servertest.Question(testHost, dns.TypeA).Pack()
	if err != nil {
		f.Fatal(err)
	}
	encoded := base64.RawURLEncoding.EncodeToString(wire)
	f.Add("GET", "dns="+encoded, "", []byte{})
	f.Add("GET", "dns="+encoded+"&dns=x", "", []byte{})
	f.Add("GET", "", "", []byte{})
	f.Add("POST", "", "application/dns-message", wire)
	f.Add("POST", "", "application/dns-message; charset=x", wire[:9])
	f.Add("POST", "", "text/plain", wire)
	f.Add("PUT", "", "", wire)
	h := handler(f)
	f.Fuzz(func(t *testing.T, method, query, kind string, body []byte) {
		r := &http.Request{
			Method: method, Host: testHost, URL: &url.URL{Path: "/dns-query", RawQuery: query}, RemoteAddr: "192.0.2.1:1234",
			Header: http.Header{"Content-Type": {kind}}, Body: http.NoBody, TLS: new(tls.ConnectionState),
		}
		r.Body = readCloser{bytes.NewReader(body)}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(t.Context()))
		if !slices.Contains(statuses, w.Code) {
			t.Fatalf("status %d", w.Code)
		}
		if w.Code == http.StatusOK && method != http.MethodHead && new(dns.Msg).Unpack(w.Body.Bytes()) != nil {
			t.Fatalf("200 with %x", w.Body.Bytes())
		}
	})
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// Only the one page is served, for all hosts and paths of requests.
func FuzzPagePath(f *testing.F) {
	for _, seed := range [][2]string{
		{"www.example.org", "/"}, {"WWW.example.org.:443", "/"}, {"www.example.org", "/../manifest.json"}, {"www.example.org", "//"},
		{"[::1]:443", "/"}, {"", ""}, {"www.example.org:x:y", "/%2e%2e/"}, {"other.example.net", "/"},
	} {
		f.Add(seed[0], seed[1])
	}
	h := handler(f)
	f.Fuzz(func(t *testing.T, host, path string) {
		if path == "/dns-query" {
			return
		}
		r := &http.Request{
			Method: http.MethodGet, Host: host, URL: &url.URL{Path: path}, RemoteAddr: "192.0.2.1:1234",
			Header: http.Header{}, Body: http.NoBody, TLS: new(tls.ConnectionState),
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if served := hostName(host) == testHost && path == "/"; (w.Code == http.StatusOK) != served || !slices.Contains(statuses, w.Code) {
			t.Fatalf("%q %q: %d", host, path, w.Code)
		}
	})
}

// A manifest cannot name a file outside its folder.
func FuzzManifestFile(f *testing.F) {
	for _, seed := range []string{"body", "../secret", "/etc/passwd", "a/../../secret", ".", "", "body/0", "..", "a/..//body"} {
		f.Add(seed)
	}
	folder := f.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "page"), 0o700); err != nil {
		f.Fatal(err)
	}
	for file, text := range map[string]string{"page/body": "abc", "secret": "xyz"} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, name string) {
		r := manifestResource{Path: "/", File: name, WireBytes: 3}
		if loaded, err := r.load(filepath.Join(folder, "page")); err == nil && string(loaded.body) != "abc" {
			t.Fatalf("%q: %q", name, loaded.body)
		}
	})
}
