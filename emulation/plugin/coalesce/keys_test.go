package coalesce

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"crosslayer.example/emulation/internal/servertest"
)

// With SSLKEYLOGFILE and QLOGDIR, TLS keys of HTTPS and HTTP/3 and qlogs of QUIC connections are written.
func TestKeysAndQlogs(t *testing.T) {
	folder := t.TempDir()
	keys := filepath.Join(folder, "keys.log")
	t.Setenv("SSLKEYLOGFILE", keys)
	t.Setenv("QLOGDIR", folder)
	s := start(t, nil, "")
	count := func() int {
		text, err := os.ReadFile(keys)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "SERVER_TRAFFIC_SECRET_0 ")
	}
	roundTrip(t, s.Client(), s.addresses["h3/udp"], request(t, http.MethodGet, "/"), func() {})
	conn, err := tls.Dial("tcp", s.addresses["https/tcp"], s.Client().Config("h2"))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	servertest.Eventually(t, "the keys of both connections", func() bool { return count() == 2 })
	if about, err := os.Stat(keys); err != nil || about.Mode().Perm() != 0o600 {
		t.Errorf("the keys are their owner's only: %v, %v", about.Mode(), err)
	}
	servertest.Eventually(t, "the qlog of the connection over QUIC", func() bool {
		files, _ := filepath.Glob(filepath.Join(folder, "*_server.sqlog"))
		return len(files) == 1
	})
	t.Setenv("SSLKEYLOGFILE", filepath.Join(folder, "no", "such", "folder"))
	if err := logKeys(&tls.Config{}); err == nil {
		t.Error("a file that cannot be written is not reported")
	}
}
