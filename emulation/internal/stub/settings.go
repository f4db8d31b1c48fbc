package stub

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// protocol is a DNS transport.
type protocol string

const (
	doUDP protocol = "DoUDP"
	doTCP protocol = "DoTCP"
	doT   protocol = "DoT"
	doH   protocol = "DoH"
	doH3  protocol = "DoH3"
	doQ   protocol = "DoQ"
)

// scheme is the scheme and default port of a transport in an upstream's URL.
type scheme struct {
	name     string
	protocol protocol
	port     uint16
}

var schemes = []scheme{
	{"udp", doUDP, 53}, {"tcp", doTCP, 53}, {"tls", doT, 853}, {"https", doH, 443},
	{"h3", doH3, 443}, {"doh3", doH3, 443}, {"quic", doQ, 853},
}

// encrypted reports whether the transport uses TLS. If so, certificates are verified and queries are padded.
func (p protocol) encrypted() bool { return p != doUDP && p != doTCP }

func (p protocol) overHTTP() bool { return p == doH || p == doH3 }

// resumption determines how a new connection uses an earlier session.
type resumption string

const (
	resumeNothing resumption = "none"       // full handshake, without ticket and without address-validation token
	resumeTicket  resumption = "ticket"     // the query waits for the resumed handshake
	resumeEarly   resumption = "early-data" // the query is sent in the first flight (0-RTT)
)

// resumptions returns the possible values for a transport. Go's TLS supports no early data over TCP.
func (p protocol) resumptions() []resumption {
	switch p {
	case doT, doH:
		return []resumption{resumeNothing, resumeTicket}
	case doQ, doH3:
		return []resumption{resumeNothing, resumeTicket, resumeEarly}
	}
	return []resumption{resumeNothing}
}

// upstream is the server that queries are forwarded to.
type upstream struct {
	protocol protocol
	host     string // address or name
	port     uint16
	path     string // of DoH and DoH3
}

func parseUpstream(text string) (upstream, error) {
	fail := func(what string) (upstream, error) {
		return upstream{}, fmt.Errorf("--upstream %q: %s", text, what)
	}
	u, err := url.Parse(text)
	if err != nil {
		return fail("not a URL; write e.g. quic://192.0.2.1")
	}
	i := slices.IndexFunc(schemes, func(s scheme) bool { return s.name == u.Scheme })
	if i < 0 {
		names := make([]string, len(schemes))
		for i, s := range schemes {
			names[i] = s.name + "://"
		}
		return fail("unknown transport; use one of " + strings.Join(names, ", "))
	}
	up := upstream{protocol: schemes[i].protocol, host: u.Hostname(), port: schemes[i].port, path: u.EscapedPath()}
	if up.host == "" {
		return fail("no host; write e.g. " + u.Scheme + "://192.0.2.1")
	}
	if text := u.Port(); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return fail("the port must be 1 to 65535")
		}
		up.port = uint16(port)
	}
	switch {
	case up.protocol == doQ && up.port == 53:
		return fail("port 53 must not be used for DNS over QUIC (RFC 9250, section 4.1.1)")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fail("only host, port and, over HTTP, a path can be given")
	case up.protocol.overHTTP() && (up.path == "" || up.path == "/"):
		up.path = "/dns-query"
	case !up.protocol.overHTTP() && up.path != "" && up.path != "/":
		return fail("a path is for https:// and h3:// only")
	}
	return up, nil
}

// resolve returns the address of the host. It resolves a name with the system's resolver.
func (u upstream) resolve(ctx context.Context) (netip.AddrPort, error) {
	if address, err := netip.ParseAddr(u.host); err == nil {
		return netip.AddrPortFrom(address, u.port), nil
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("--upstream: the name %s cannot be resolved (%w); give its address, and the name as --server-name", u.host, err)
	}
	return netip.AddrPortFrom(addresses[0].Unmap(), u.port), nil
}

// settings are the options of the command line.
type settings struct {
	upstream       upstream
	url            string
	listen         netip.AddrPort
	ca             string
	serverName     string
	resumption     resumption
	connections    connections
	timeout        time.Duration
	idleTimeout    time.Duration
	udpRetransmit  time.Duration
	probeIdleAfter time.Duration // 0: never
	clientTimeout  time.Duration
	postQuantum    bool
	control        string
	metrics        string

	gateway        netip.AddrPort // invalid without a gateway
	certificate    string
	key            string
	pageConnection pageConnection
}

func parseSettings(arguments []string, usage io.Writer) (settings, error) {
	var s settings
	var listen, resume, share, gateway, pages string
	flags := flag.NewFlagSet("crosslayer-stub", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is one line, without the usage
	flags.StringVar(&s.url, "upstream", "", "forward to this `URL`: udp, tcp, tls, https, h3 or quic://HOST[:PORT]")
	flags.StringVar(&listen, "listen", "127.0.0.1:53", "answer on this `ADDRESS:PORT`, UDP and TCP")
	flags.StringVar(&s.ca, "ca", "", "verify the upstream's certificate against the CAs in this PEM `FILE` instead of the system's")
	flags.StringVar(&s.serverName, "server-name", "", "`NAME` in the upstream's certificate, SNI and HTTP authority, where it is not the host in the URL")
	flags.StringVar(&resume, "resumption", "", "none, ticket or early-data (default ticket, none over udp and tcp)")
	flags.StringVar(&share, "connections", string(oneConnection), "over tcp and tls: one for all queries, pool for an idle one or another, query for one each")
	flags.DurationVar(&s.timeout, "timeout", 5*time.Second, "give up a query after this time")
	flags.DurationVar(&s.idleTimeout, "idle-timeout", 30*time.Second, "close the upstream connection after this time without a query")
	flags.DurationVar(&s.udpRetransmit, "udp-retransmit", time.Second, "over udp, ask again after this time, then after twice as long, and so on")
	flags.DurationVar(&s.probeIdleAfter, "probe-idle-after", time.Second, "on a connection without an answer for this time, ask over a new one too if nothing comes within a probe timeout; 0 never")
	flags.DurationVar(&s.clientTimeout, "client-timeout", 10*time.Second, "close a client's TCP connection that asks nothing, or reads no answer, for this time")
	flags.BoolVar(&s.postQuantum, "post-quantum", false, "offer the key share X25519MLKEM768, as browsers do; the hello then takes two packets")
	flags.StringVar(&gateway, "gateway", "", "over h3, answer on this UDP `ADDRESS:PORT` browsers' requests for what the upstream serves")
	flags.StringVar(&s.certificate, "certificate", "", "show browsers the certificate in this PEM `FILE`")
	flags.StringVar(&s.key, "key", "", "its private key, a PEM `FILE`")
	flags.StringVar(&pages, "page-connection", string(separateConnection), "requests of browsers leave on a connection of their own (separate) or on that of the queries (shared)")
	flags.StringVar(&s.control, "control", "", "take commands on a Unix socket at `PATH`")
	flags.StringVar(&s.metrics, "metrics", "-", "append one JSON line per query to `FILE`, - for standard output")
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(usage)
			flags.PrintDefaults()
		}
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("%q is not an option", flags.Arg(0))
	}
	if s.url == "" {
		return s, errors.New("--upstream is missing; write e.g. --upstream quic://192.0.2.1")
	}
	var err error
	if s.upstream, err = parseUpstream(s.url); err != nil {
		return s, err
	}
	if s.listen, err = netip.ParseAddrPort(listen); err != nil {
		return s, fmt.Errorf("--listen %q: not an address with a port; write e.g. 127.0.0.1:53", listen)
	}
	if s.listen.Addr().IsUnspecified() {
		return s, fmt.Errorf("--listen %q: name one address, so that answers come from where the query went and nobody else is served", listen)
	}
	s.resumption = resumption(resume)
	possible := s.upstream.protocol.resumptions()
	if resume == "" {
		s.resumption = possible[min(1, len(possible)-1)]
	} else if !slices.Contains(possible, s.resumption) {
		return s, fmt.Errorf("--resumption %s: %s has %s", resume, s.upstream.protocol, strings.Trim(fmt.Sprint(possible), "[]"))
	}
	s.connections = connections(share)
	shared := []connections{oneConnection}
	if s.upstream.protocol == doTCP || s.upstream.protocol == doT {
		shared = append(shared, pooled, perQuery)
	}
	if !slices.Contains(shared, s.connections) {
		return s, fmt.Errorf("--connections %s: %s has %s", share, s.upstream.protocol, strings.Trim(fmt.Sprint(shared), "[]"))
	}
	if gateway != "" || s.certificate != "" || s.key != "" {
		if err := s.setGateway(gateway, pageConnection(pages)); err != nil {
			return s, err
		}
	}
	for name, duration := range map[string]time.Duration{
		"timeout": s.timeout, "idle-timeout": s.idleTimeout, "udp-retransmit": s.udpRetransmit, "client-timeout": s.clientTimeout,
	} {
		if duration < time.Millisecond {
			return s, fmt.Errorf("--%s %s: must be at least 1ms", name, duration)
		}
	}
	if s.probeIdleAfter < 0 {
		return s, fmt.Errorf("--probe-idle-after %s: must not be below 0", s.probeIdleAfter)
	}
	if s.serverName == "" {
		s.serverName = strings.TrimSuffix(s.upstream.host, ".")
	}
	if strings.ContainsFunc(s.serverName, func(r rune) bool { return r > 127 || !strings.ContainsRune("-.:_", r) && !alphanumeric(r) }) {
		return s, fmt.Errorf("--server-name %q: neither a host name nor an address", s.serverName)
	}
	return s, nil
}

// setGateway sets and checks the options of the gateway.
func (s *settings) setGateway(listen string, pages pageConnection) (err error) {
	s.pageConnection = pages
	if s.gateway, err = netip.ParseAddrPort(listen); err != nil {
		return fmt.Errorf("--gateway %q: not an address with a port; write e.g. 127.0.0.1:443", listen)
	}
	switch {
	case s.gateway.Addr().IsUnspecified():
		return fmt.Errorf("--gateway %q: name one address, since names are answered with it", listen)
	case s.upstream.protocol != doH3:
		return fmt.Errorf("--gateway: pages come over HTTP/3; write --upstream h3://%s", s.upstream.host)
	case s.resumption == resumeEarly:
		return errors.New("--gateway: requests of pages wait for the handshake; use --resumption none or ticket")
	case s.certificate == "" || s.key == "":
		return errors.New("--gateway: browsers want a certificate; name --certificate and --key")
	case pages != separateConnection && pages != sharedConnection:
		return fmt.Errorf("--page-connection %s: choose %s or %s", pages, separateConnection, sharedConnection)
	}
	return nil
}

func alphanumeric(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// minRSABits is the smallest RSA key in a chain, as for the Python clients (crosslayer.dns.certificates).
const minRSABits = 2048

// checkChain applies the policy of the Python clients after crypto/tls has verified the chain: the leaf is not a CA, and RSA
// keys have at least minRSABits. crypto/tls does not enforce this.
func checkChain(state tls.ConnectionState) error {
	refusal := errors.New("no chain was verified")
	for _, chain := range state.VerifiedChains {
		if refusal = refused(chain); refusal == nil {
			return nil
		}
	}
	return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: refusal}
}

// refused returns the reason why the policy rejects a chain, leaf first; nil if it accepts it.
func refused(chain []*x509.Certificate) error {
	if chain[0].IsCA {
		return errors.New("the server's certificate is that of a CA")
	}
	for _, certificate := range chain {
		if key, ok := certificate.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() < minRSABits {
			return fmt.Errorf("an RSA key of %d bits, less than %d", key.N.BitLen(), minRSABits)
		}
	}
	return nil
}

// tlsConfig returns the TLS configuration of all connections. Certificates are always verified.
func (s settings) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{
		ServerName:       s.serverName,
		MinVersion:       tls.VersionTLS12,
		VerifyConnection: checkChain,
		// Without a post-quantum share the hello stays in one packet.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256},
	}
	if s.postQuantum {
		config.CurvePreferences = append([]tls.CurveID{tls.X25519MLKEM768}, config.CurvePreferences...)
	}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca %s: there is no certificate in it", s.ca)
		}
	}
	return config, nil
}
