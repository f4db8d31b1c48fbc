// Command crosslayer-server is CoreDNS with a short plugin list and the plugins early and coalesce: DNS over every
// transport and web pages over HTTP/3, on one certificate and one set of session-ticket keys.
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

// Order of the plugins in a server block, as in CoreDNS; ours stand before everything that answers.
var directives = []string{"tls", "bind", "errors", "early", "coalesce", "nsid", "minimal", "box", "file", "forward"}

func main() {
	dnsserver.Directives = directives
	coremain.Run()
}
