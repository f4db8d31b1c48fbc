package stub

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestUpstreams(t *testing.T) {
	for text, wanted := range map[string]upstream{
		"udp://192.0.2.1":                   {doUDP, "192.0.2.1", 53, ""},
		"tcp://192.0.2.1:5353":              {doTCP, "192.0.2.1", 5353, ""},
		"tls://dns.test":                    {doT, "dns.test", 853, ""},
		"https://192.0.2.1":                 {doH, "192.0.2.1", 443, "/dns-query"},
		"https://192.0.2.1:8443/other/path": {doH, "192.0.2.1", 8443, "/other/path"},
		"h3://[2001:db8::1]/":               {doH3, "2001:db8::1", 443, "/dns-query"},
		"doh3://192.0.2.1":                  {doH3, "192.0.2.1", 443, "/dns-query"},
		"quic://192.0.2.1/":                 {doQ, "192.0.2.1", 853, "/"},
		"QUIC://192.0.2.1":                  {doQ, "192.0.2.1", 853, ""},
	} {
		got, err := parseUpstream(text)
		if err != nil || got != wanted {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestQueryURL(t *testing.T) {
	for text, wanted := range map[string]string{
		"https://dns.test":        "https://dns.test/dns-query?dns=",
		"https://dns.test:8443/x": "https://dns.test:8443/x?dns=",
		"h3://[2001:db8::1]:444":  "https://[2001:db8::1]:444/dns-query?dns=",
	} {
		s, err := parseSettings([]string{"--upstream", text}, io.Discard)
		if err != nil || s.queryURL() != wanted {
			t.Errorf("%s: %s, %v", text, s.queryURL(), err)
		}
	}
}

func TestDefaults(t *testing.T) {
	for url, wanted := range map[string]resumption{
		"udp://192.0.2.1": resumeNothing, "tcp://192.0.2.1": resumeNothing, "tls://192.0.2.1": resumeTicket, "quic://192.0.2.1": resumeTicket,
	} {
		s, err := parseSettings([]string{"--upstream", url}, io.Discard)
		if err != nil || s.resumption != wanted || s.serverName != "192.0.2.1" || s.listen.String() != "127.0.0.1:53" || s.timeout != 5*time.Second {
			t.Errorf("%s: %+v, %v", url, s, err)
		}
	}
}

func TestWrongOptionsAreOneClearLine(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(ca, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good, web := "quic://192.0.2.1", "h3://192.0.2.1"
	paired := " --gateway 127.0.0.1:0 --certificate /nowhere --key /nowhere"
	for arguments, fault := range map[string]string{
		"":                                                                                    "--upstream is missing",
		"--upstream doq://192.0.2.1":                                                          "unknown transport; use one of udp://, tcp://",
		"--upstream 192.0.2.1":                                                                "unknown transport",
		"--upstream quic://":                                                                  "no host",
		"--upstream quic://192.0.2.1:0":                                                       "the port must be",
		"--upstream quic://192.0.2.1:70000":                                                   "the port must be",
		"--upstream quic://192.0.2.1:53":                                                      "port 53 must not be used",
		"--upstream quic://192.0.2.1:x":                                                       "not a URL",
		"--upstream tls://192.0.2.1/path":                                                     "a path is for",
		"--upstream https://192.0.2.1/?dns=x":                                                 "only host, port and",
		"--upstream https://u@192.0.2.1":                                                      "only host, port and",
		"--upstream " + good + " --listen 53":                                                 "not an address with a port",
		"--upstream " + good + " --listen 0.0.0.0:53":                                         "name one address",
		"--upstream " + good + " --resumption all":                                            "DoQ has none ticket early-data",
		"--upstream udp://192.0.2.1 --resumption ticket":                                      "DoUDP has none",
		"--upstream " + good + " --connections pool":                                          "DoQ has one",
		"--upstream " + good + " --probe-idle-after -1s":                                      "must not be below 0",
		"--upstream tcp://192.0.2.1 --connections many":                                       "DoTCP has one pool query",
		"--upstream tls://192.0.2.1 --resumption early-data":                                  "DoT has none ticket",
		"--upstream " + good + " --timeout 0s":                                                "must be at least 1ms",
		"--upstream " + good + " --timeout 5":                                                 "invalid value",
		"--upstream " + good + " --idle-timeout -1s":                                          "must be at least 1ms",
		"--upstream " + good + " --server-name no!name":                                       "neither a host name nor an address",
		"--upstream " + good + " --gateway 127.0.0.1:443":                                     "pages come over HTTP/3; write --upstream h3://",
		"--upstream " + web + " --gateway 443":                                                "--gateway \"443\": not an address with a port",
		"--upstream " + web + " --certificate x":                                              "--gateway \"\": not an address with a port",
		"--upstream " + web + " --gateway 0.0.0.0:443":                                        "name one address",
		"--upstream " + web + " --gateway 127.0.0.1:443":                                      "name --certificate and --key",
		"--upstream " + web + paired + " --resumption early-data":                             "wait for the handshake",
		"--upstream " + web + paired + " --page-connection many":                              "choose separate or shared",
		"--upstream " + web + paired + " --listen 127.0.0.1:0":                                "--certificate and --key: open /nowhere",
		"--upstream h3://[2001:db8::1]" + paired + " --listen 127.0.0.1:0":                    "of another family",
		"--upstream " + good + " --frobnicate":                                                "not defined",
		"--upstream " + good + " more":                                                        `"more" is not an option`,
		"--upstream " + good + " --ca " + ca:                                                  "there is no certificate in it",
		"--upstream " + good + " --ca /nowhere":                                               "--ca: open /nowhere: no such file",
		"--upstream " + good + " --listen 192.0.2.77:0":                                       "cannot listen on 192.0.2.77:0: cannot assign requested address; choose",
		"--upstream quic://no.such.name.invalid":                                              "cannot be resolved",
		"--upstream " + good + " --listen 127.0.0.1:0 --metrics /nowhere/x":                   "/nowhere/x",
		"--upstream " + good + " --listen 127.0.0.1:0 --control /" + strings.Repeat("x", 120): "is longer than the",
	} {
		err := Run(t.Context(), strings.Fields(arguments))
		if err == nil || !strings.Contains(err.Error(), fault) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

// Errors of an upstream are in the rows. Libraries print no messages about them.
func TestLibrariesPrintNothing(t *testing.T) {
	var printed lockedBuffer
	log.SetOutput(&printed)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	c := newCredentials(t)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	var asked atomic.Int32
	odd := &sometimesOdd{plain, func() bool { return true }, func(socket net.Conn) {
		serveFrames(socket, c.config, nil, func(conn net.Conn, stream uint32) error {
			asked.Add(1)
			_, err := conn.Write(frame(h2Data, 0, stream, 1, 2, 3)) // before any header
			return err
		})
	}}
	go func() { _, _ = odd.Accept() }()
	folder := t.TempDir()
	socket, metrics := filepath.Join(folder, "control"), filepath.Join(folder, "metrics")
	arguments := []string{"--upstream", "https://" + plain.Addr().String(), "--ca", c.ca, "--server-name", serverName,
		"--listen", "127.0.0.1:0", "--control", socket, "--metrics", metrics, "--timeout", "1s"}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- Run(ctx, arguments) }()
	until(t, "it is ready", func() bool { _, err := os.Stat(socket); return err == nil })
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var ready struct{ Listen string }
	if _, err := conn.Write([]byte(`{"command": "ready"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(conn).Decode(&ready); err != nil {
		t.Fatal(err)
	}
	answer, _, err := new(dns.Client).Exchange(question("www.example.org", dns.TypeA), ready.Listen)
	if err != nil || answer.Rcode != dns.RcodeServerFailure || asked.Load() == 0 {
		t.Errorf("%v, %v, asked %d times", answer, err, asked.Load())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if text := printed.String(); text != "" {
		t.Errorf("printed: %s", text)
	}
}

// lockedBuffer is a buffer for concurrent use.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	control := filepath.Join(t.TempDir(), "control")
	go func() {
		ended <- Run(ctx, []string{"--upstream", "quic://127.0.0.1", "--listen", "127.0.0.1:0", "--control", control, "--metrics", ""})
	}()
	until(t, "it is ready", func() bool { _, err := os.Stat(control); return err == nil })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(control); err == nil {
		t.Error("the control socket is left behind")
	}
}
