package coalesce

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"crosslayer.example/emulation/plugin/early"

	"github.com/coredns/caddy"
)

func TestParse(t *testing.T) {
	changed := early.DefaultOptions
	changed.Retry, changed.EarlyData, changed.IdleTimeout = true, early.Late, 2*time.Second
	defaults := options{Options: early.DefaultOptions, maxTLS: tls.VersionTLS13}
	for _, c := range []struct {
		input string
		want  options
		bare  bool
		err   string // part of the error; empty for no error
	}{
		{"coalesce", defaults, true, ""},
		{"coalesce {\n doq :853\n}", options{doq: ":853", Options: early.DefaultOptions, maxTLS: tls.VersionTLS13}, false, ""},
		{
			"coalesce {\n pages /sites\n https :443\n h3 :443\n doq :853\n control /c\n events /e\n retry on\n max_tls 1.2\n early_data late\n idle_timeout 2s\n}",
			options{
				pages: "/sites", https: ":443", h3: ":443", doq: ":853", control: "/c", events: "/e",
				maxTLS: tls.VersionTLS12, Options: changed,
			}, false, "",
		},
		{"coalesce {\n pages \"/a b\"\n}", options{pages: "/a b", Options: early.DefaultOptions, maxTLS: tls.VersionTLS13}, false, ""},
		{"coalesce {\n doq :853\n doq_alpn doq-i02\n}", options{doq: ":853", doqALPN: "doq-i02", Options: early.DefaultOptions, maxTLS: tls.VersionTLS13}, false, ""},
		{"coalesce :443", options{}, false, "Wrong argument count"},
		{"coalesce {\n doq\n}", options{}, false, "Wrong argument count"},
		{"coalesce {\n doq :1 :2\n}", options{}, false, "Wrong argument count"},
		{"coalesce {\n doq :1\n doq :2\n}", options{}, false, "given twice"},
		{"coalesce {\n dot :853\n}", options{}, false, "unknown property 'dot'"},
		{"coalesce {\n retry yes\n}", options{}, false, "either on or off"},
		{"coalesce {\n max_tls 1.1\n}", options{}, false, "either 1.2 or 1.3"},
		{"coalesce {\n early_data soon\n}", options{}, false, "on, off or late"},
		{"coalesce {\n idle_timeout long\n}", options{}, false, "invalid duration"},
		{"coalesce {\n idle_timeout 0s\n}", options{}, false, "must be positive"},
		{"coalesce\ncoalesce", options{}, false, "once per Server Block"},
	} {
		got, bare, err := parse(caddy.NewTestController("dns", c.input))
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%q: %v", c.input, err)
		case c.err == "" && (got != c.want || bare != c.bare):
			t.Errorf("%q: %+v, bare: %v", c.input, got, bare)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q: error %v, not %q", c.input, err, c.err)
		}
	}
}
