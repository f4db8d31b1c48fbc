package stub

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/miekg/dns"
)

const (
	dnsMessage     = "application/dns-message"
	httpsPort      = 443
	maxHeaderBytes = 1 << 16
)

// queryURL returns the URL of DoH and DoH3 up to the query (RFC 8484, section 4.1). The method is GET, because its requests
// may be sent as early data.
func (s settings) queryURL() string {
	authority := s.serverName
	if strings.Contains(authority, ":") {
		authority = "[" + authority + "]"
	}
	if s.upstream.port != httpsPort {
		authority += ":" + strconv.Itoa(int(s.upstream.port))
	}
	return "https://" + authority + s.upstream.path + "?dns="
}

// newRequest returns the GET request for a query, without the headers that net/http adds by default.
func newRequest(ctx context.Context, url string, query []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+base64.RawURLEncoding.EncodeToString(query), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{"Accept": {dnsMessage}, "User-Agent": {""}}
	return request, nil
}

// readResponse reads the DNS message of a response (RFC 8484, section 4.2).
func readResponse(response *http.Response) ([]byte, error) {
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, badAnswer(fmt.Sprintf("http status %d", response.StatusCode))
	}
	if kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type")); err != nil || kind != dnsMessage {
		return nil, badAnswer("content type is not " + dnsMessage)
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return nil, badAnswer("content encoding " + encoding) // the request accepts none
	}
	wire, err := io.ReadAll(io.LimitReader(response.Body, maxMessageBytes+1))
	if err != nil {
		return nil, err
	}
	if len(wire) > maxMessageBytes {
		return nil, errOversized
	}
	if age, err := strconv.ParseUint(response.Header.Get("Age"), 10, 32); err == nil && age > 0 {
		return subtractAge(wire, uint32(age))
	}
	return wire, nil
}

// subtractAge subtracts the time that a message spent in HTTP caches from the TTLs of its records (RFC 8484, section 5.1).
func subtractAge(wire []byte, seconds uint32) ([]byte, error) {
	m, err := parse(wire)
	if err != nil {
		return nil, errMalformed
	}
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, record := range section {
			if header := record.Header(); header.Rrtype != dns.TypeOPT {
				header.Ttl -= min(header.Ttl, seconds)
			}
		}
	}
	m.Compress = true
	return m.Pack()
}

// httpDialer sets up DoH over HTTP/2.
type httpDialer struct {
	streamDialer
	url string
}

func (d httpDialer) dial(ctx context.Context, cache *sessionCache) (conn, error) {
	c := &httpConn{url: d.url}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{
		Protocols:              protocols,
		DisableCompression:     true,
		IdleConnTimeout:        d.idle,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DialTLSContext: func(ctx context.Context, _, _ string) (socket net.Conn, err error) {
			socket, c.tlsState, err = d.connect(ctx, cache, []string{"h2"})
			if err == nil {
				c.socket, c.port = socket, portOf(socket.LocalAddr())
			}
			return socket, err
		},
	}
	var err error
	if c.ClientConn, err = transport.NewClientConn(ctx, "https", d.address.String()); err != nil {
		return nil, err
	}
	return c, nil
}

// httpConn is one HTTP/2 connection.
type httpConn struct {
	*http.ClientConn
	watchdog
	url      string
	socket   net.Conn
	tlsState connState
	port     uint16
}

func (c *httpConn) ask(ctx context.Context, query []byte) ([]byte, error) {
	request, err := newRequest(ctx, c.url, query)
	if err != nil {
		return nil, err
	}
	wire, err := c.call(ctx, func() ([]byte, error) {
		response, err := c.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		return readResponse(response)
	})
	return wire, classifyError(ctx, err)
}

// classifyError returns the error of a query: a badAnswer or the context's error unchanged, else a *broken connection.
func classifyError(ctx context.Context, err error) error {
	switch err.(type) {
	case nil, badAnswer:
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded // a deadline of the stream, shortly before the context's
	}
	return &broken{err}
}

// usable is false too after the server's GOAWAY, once all answers have arrived.
func (c *httpConn) usable() bool {
	return c.check(func() bool { return c.Err() == nil && (c.Available() > 0 || c.InFlight() > 0) })
}

func (c *httpConn) early() bool       { return false }
func (c *httpConn) state() connState  { return c.tlsState }
func (c *httpConn) path() pathState   { return tcpPath(c.socket) }
func (c *httpConn) localPort() uint16 { return c.port }

func (c *httpConn) close() {
	if !c.check(func() bool { return c.Close() == nil }) {
		_ = c.socket.Close() // a stuck library does not close it
	}
}
