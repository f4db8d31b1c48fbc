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

// queryURL is the URL of DoH and DoH3 up to the query (RFC 8484, section 4.1): with GET, early data may carry it.
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

// newRequest is the GET request for a query; what HTTP adds on its own is left out.
func newRequest(ctx context.Context, url string, query []byte) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+base64.RawURLEncoding.EncodeToString(query), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{"Accept": {dnsMessage}, "User-Agent": {""}}
	return request, nil
}

// readResponse reads the DNS message in a response (RFC 8484, section 4.2).
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
		return aged(wire, uint32(age))
	}
	return wire, nil
}

// aged takes the time a message has been in HTTP caches from its records' TTLs (RFC 8484, section 5.1).
func aged(wire []byte, seconds uint32) ([]byte, error) {
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

func (d httpDialer) dial(ctx context.Context, kept *sessionCache) (conn, error) {
	c := &httpConn{url: d.url}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{
		Protocols:              protocols,
		DisableCompression:     true,
		IdleConnTimeout:        d.idle,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DialTLSContext: func(ctx context.Context, _, _ string) (socket net.Conn, err error) {
			socket, c.tlsState, err = d.connect(ctx, kept, []string{"h2"})
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
	return wire, verdict(ctx, err)
}

// verdict tells a connection that failed from an answer that is bad, or did not come in time.
func verdict(ctx context.Context, err error) error {
	switch err.(type) {
	case nil, badAnswer:
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded // of the query, a moment before the context's own
	}
	return &broken{err}
}

// usable is false after the server's GOAWAY too, once the last answer has come.
func (c *httpConn) usable() bool {
	return c.holds(func() bool { return c.Err() == nil && (c.Available() > 0 || c.InFlight() > 0) })
}

func (c *httpConn) early() bool       { return false }
func (c *httpConn) state() connState  { return c.tlsState }
func (c *httpConn) path() pathState   { return tcpPath(c.socket) }
func (c *httpConn) localPort() uint16 { return c.port }

func (c *httpConn) close() {
	if !c.holds(func() bool { return c.Close() == nil }) {
		_ = c.socket.Close() // which the library does not do while it is stuck
	}
}
