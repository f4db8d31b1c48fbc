package stub

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// gatewayTest is a stub with a gateway, an upstream that serves DNS and pages, and an HTTP/3 client as browser.
type gatewayTest struct {
	*running
	upstream *server
	browser  *http.Client
}

func respondPath(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) }

// startGateway starts upstream, stub and gateway. page responds to the upstream's requests for pages.
func startGateway(t *testing.T, connection pageConnection, page http.HandlerFunc) *gatewayTest {
	t.Helper()
	c := newCredentials(t)
	key, err := x509.MarshalPKCS8PrivateKey(c.config.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &gatewayTest{}
	s := newServer(t, "h3", c)
	s.answer = func(query []byte) []byte {
		answer := answerTo(t, query)
		if answer.Question[0].Name == dns.Fqdn(serverName) {
			answer.Answer[0].(*dns.A).A = net.IPv4(127, 0, 0, 1)
		}
		return pack(t, answer)
	}
	s.respond = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/dns-query" {
			w.Header().Set("Content-Type", dnsMessage)
			_, _ = w.Write(s.answer(queryOf(t, r)))
			return
		}
		page(w, r)
	}
	g.upstream = s.start()
	g.running = startStub(t, "h3://"+s.address, c, "--resumption", "none", "--gateway", "127.0.0.2:0",
		"--certificate", c.certificate, "--key", keyFile, "--page-connection", string(connection))
	roots := x509.NewCertPool()
	trusted, err := os.ReadFile(c.ca)
	if err != nil || !roots.AppendCertsFromPEM(trusted) {
		t.Fatal("no CA")
	}
	transport := &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: serverName},
		Dial: func(ctx context.Context, _ string, config *tls.Config, settings *quic.Config) (*quic.Conn, error) {
			return quic.DialAddr(ctx, g.gateway.socket.LocalAddr().String(), config, settings)
		},
	}
	t.Cleanup(func() { transport.Close() })
	g.browser = &http.Client{Transport: transport, Timeout: time.Minute}
	return g
}

func (g *gatewayTest) get(host, path string) (*http.Response, string) {
	g.t.Helper()
	response, err := g.browser.Get("https://" + host + path)
	if err != nil {
		g.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return response, string(body)
}

func (g *gatewayTest) carriedRequests() map[uint16]int {
	g.t.Helper()
	var answer struct{ Requests map[uint16]int }
	g.command(`{"command": "carried"}`, &answer)
	return answer.Requests
}

func addressIn(t *testing.T, answer *dns.Msg) string {
	t.Helper()
	if len(answer.Answer) != 1 {
		t.Fatalf("%v", answer)
	}
	return answer.Answer[0].(*dns.A).A.String()
}

func TestGatewayHasOneConnectionUpstreamOrTwo(t *testing.T) {
	for connection, wanted := range map[pageConnection]int{sharedConnection: 1, separateConnection: 2} {
		t.Run(string(connection), func(t *testing.T) {
			g := startGateway(t, connection, respondPath)
			for load := 1; load <= 2; load++ {
				answer, row := g.ask(serverName)
				if got := addressIn(t, answer); got != "127.0.0.2" {
					t.Errorf("the upstream's name has the address %s, not the gateway's", got)
				}
				var loading sync.WaitGroup
				for n := range 20 {
					loading.Go(func() {
						path := fmt.Sprintf("/%d", n)
						if response, err := g.browser.Get("https://" + serverName + path); err != nil {
							t.Error(err)
						} else if body, err := io.ReadAll(response.Body); err != nil || string(body) != path {
							t.Errorf("%s: %q %v", path, body, err)
						}
					})
				}
				loading.Wait()
				if got := int(g.upstream.accepted.Load()); got != wanted*load {
					t.Errorf("%d connections upstream after load %d, wanted %d", got, load, wanted*load)
				}
				carried := g.carriedRequests()
				if _, shared := carried[row.LocalPort]; len(carried) != 1 || shared != (wanted == 1) {
					t.Errorf("requests left from %v, the query from %d", carried, row.LocalPort)
				}
				for _, count := range carried {
					if count != 20 {
						t.Errorf("%d requests were carried", count)
					}
				}
				g.commandReset("forget", wanted)
			}
			if left := g.carriedRequests(); len(left) != 0 {
				t.Errorf("after a reset, %v", left)
			}
		})
	}
}

func TestGatewayLeavesOtherAddressesAlone(t *testing.T) {
	g := startGateway(t, sharedConnection, respondPath)
	answer, _ := g.ask("elsewhere.test")
	if got := addressIn(t, answer); got != "192.0.2.1" {
		t.Errorf("another host's address became %s", got)
	}
}

func TestGatewayPassesOnWhatItGets(t *testing.T) {
	g := startGateway(t, sharedConnection, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Priority") != "u=1, i" || r.Header.Get("User-Agent") != "a browser" || r.Host != serverName || r.URL.RawQuery != "a=1;2" {
			t.Errorf("upstream got %s %s %v", r.Host, r.URL, r.Header)
		}
		if r.Header.Get("Via") != "3 crosslayer-stub" || r.Header.Get("X-Forwarded-For") != "" {
			t.Errorf("upstream got %v", r.Header)
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Length", "3")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "abc")
	})
	request, _ := http.NewRequest(http.MethodGet, "https://"+serverName+"/?a=1;2", nil)
	request.Header = http.Header{"Priority": {"u=1, i"}, "User-Agent": {"a browser"}, "Accept-Encoding": {"gzip"}}
	response, err := g.browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "abc" || response.StatusCode != http.StatusNotFound ||
		response.Header.Get("Content-Encoding") != "gzip" || response.ContentLength != 3 {
		t.Errorf("%q %v %+v", body, err, response)
	}
}

func TestGatewayPassesOnBytesAsTheyComeAndNothingWaitsForThem(t *testing.T) {
	read := make(chan struct{})
	g := startGateway(t, sharedConnection, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begin")
		if r.URL.Path == "/slow" {
			w.(http.Flusher).Flush()
			<-read
			_, _ = io.WriteString(w, "end")
		}
	})
	response, err := g.browser.Get("https://" + serverName + "/slow")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	begin := make([]byte, 5)
	if _, err := io.ReadFull(response.Body, begin); err != nil || string(begin) != "begin" {
		t.Fatalf("%q %v", begin, err)
	}
	if _, body := g.get(serverName, "/fast"); body != "begin" {
		t.Errorf("%q", body)
	}
	close(read)
	if end, err := io.ReadAll(response.Body); err != nil || string(end) != "end" {
		t.Errorf("%q %v", end, err)
	}
}

func TestGatewayTellsTheUpstreamThatABrowserHasGone(t *testing.T) {
	gone := make(chan struct{})
	g := startGateway(t, separateConnection, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	})
	response, err := g.browser.Get("https://" + serverName + "/")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	select {
	case <-gone:
	case <-time.After(20 * time.Second):
		t.Error("the request went on")
	}
}

func TestGatewaySaysWhatItCannotDo(t *testing.T) {
	g := startGateway(t, separateConnection, respondPath)
	refused := func(response *http.Response, body string, status int, why string) {
		t.Helper()
		if response.StatusCode != status || !strings.Contains(body, why) {
			t.Errorf("%d %q, wanted %d %q", response.StatusCode, body, status, why)
		}
	}
	response, err := g.browser.Post("https://"+serverName+"/", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	refused(response, string(body), http.StatusMethodNotAllowed, "GET and HEAD")
	response, text := g.get("elsewhere.test", "/")
	refused(response, text, http.StatusMisdirectedRequest, "does not name this host")
	g.upstream.stop()
	g.commandReset("forget", 1)
	response, text = g.get(serverName, "/")
	if response.StatusCode != http.StatusGatewayTimeout && response.StatusCode != http.StatusBadGateway {
		t.Errorf("without an upstream: %d %q", response.StatusCode, text)
	}
}

func TestGatewayResetWaitsForNobodyLongerThanItHasPatience(t *testing.T) {
	g := startGateway(t, sharedConnection, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	response, err := g.browser.Get("https://" + serverName + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	g.commandReset("forget", 1)
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Error("the response ended well on a connection that was cut")
	}
}
