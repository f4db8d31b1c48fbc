// Command crosslayer-server is CoreDNS with few of its plugins and with the plugins early, coalesce and box. It serves DNS
// over every transport and web pages over HTTP/2 and HTTP/3, with one certificate and one set of session-ticket keys.
package main

import (
	_ "crosslayer.example/emulation/plugin/box"
	_ "crosslayer.example/emulation/plugin/coalesce"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/minimal"
	_ "github.com/coredns/coredns/plugin/nsid"
	_ "github.com/coredns/coredns/plugin/tls"
)

// directives is the order of the plugins in a server block. It is that of CoreDNS, with early and coalesce before all
// plugins that answer queries.
var directives = []string{"tls", "bind", "errors", "early", "coalesce", "nsid", "minimal", "box", "file", "forward"}

func main() {
	dnsserver.Directives = directives
	coremain.Run()
}
