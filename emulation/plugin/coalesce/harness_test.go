package coalesce

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"crosslayer.example/emulation/internal/servertest"
)

const testHost = servertest.Host

func TestMain(m *testing.M) { servertest.Main(m, pluginName, "tsig") }

// running is a CoreDNS instance with the plugin and an open control socket.
type running struct {
	*servertest.Folder
	t        *testing.T
	corefile string
	control  net.Conn
	answers  *bufio.Reader
	// addresses of the listeners, by listener and network, e.g. "h3/udp" or "dns/tcp"
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
	s := &running{Folder: servertest.NewFolder(t), t: t, addresses: map[string]string{}}
	s.Write("sites/page/body/0", "gzipped, so to speak")
	s.Write("sites/page/manifest.json", `{"page": "page", "host": "www.example.org", "aliases": ["alias.example.org"], "resources": [
		{"path": "/", "file": "body/0", "content_type": "text/html; charset=utf-8", "content_encoding": "gzip", "wire_bytes": 20},
		{"path": "/a%20b%2Fc%27", "file": "body/0", "content_type": "text/plain", "content_encoding": "", "wire_bytes": 20, "host": "cdn.example.org"},
		{"path": "/elsewhere", "file": "body/0", "content_type": "text/plain", "content_encoding": "", "wire_bytes": 20, "host": "cdn.example.org"}]}`)
	s.corefile = s.block(properties) + blocks
	s.Start(s.corefile)
	s.connect()
	return s
}

// block returns the first server block of the Corefile.
func (s *running) block(properties map[string]string) string {
	all := map[string]string{
		"pages": s.Path("sites"), "https": "127.0.0.1:0", "h3": "127.0.0.1:0", "doq": "127.0.0.1:0",
		"control": s.Path("control"), "events": s.Path("events"),
	}
	for name, value := range properties {
		all[name] = value
	}
	var block strings.Builder
	for name, value := range all {
		fmt.Fprintf(&block, "\t\t%s %s\n", name, value)
	}
	return ".:0 tls://.:0 {\n\tbind 127.0.0.1\n\ttls cert.pem key.pem\n\terrors\n\tcoalesce {\n" + block.String() + "\t}\n\tacknowledge\n\tfile zone .\n}\n"
}

// connect connects to the control socket and reads the addresses of the listeners.
func (s *running) connect() {
	s.t.Helper()
	conn, err := net.Dial("unix", s.Path("control"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	s.control, s.answers = conn, bufio.NewReader(conn)
	var ready struct{ Listeners []listening }
	s.command(`{"command": "ready"}`, &ready)
	for _, l := range ready.Listeners {
		s.addresses[l.Listener+"/"+l.Network] = l.Address
	}
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
	text, err := os.ReadFile(s.Path("events"))
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
