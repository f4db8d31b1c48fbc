package servertest

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// Client is a TLS client that stores tickets and address-validation tokens for later connections.
type Client struct {
	TLS    *tls.Config
	Tokens quic.TokenStore
}

// Client returns a client without tickets and tokens that trusts the server's certificate.
func (f *Folder) Client() Client {
	return Client{
		TLS:    &tls.Config{RootCAs: f.Roots, ServerName: Host, ClientSessionCache: tls.NewLRUClientSessionCache(8)},
		Tokens: quic.NewLRUTokenStore(8, 8),
	}
}

// Config returns the client's TLS configuration for these application protocols.
func (c Client) Config(alpn ...string) *tls.Config {
	config := c.TLS.Clone()
	config.NextProtos = alpn
	return config
}

// H3Transport returns an HTTP/3 transport that sends requests for every host to one address. With early true it sends early
// data if it has a ticket; else it waits for the handshake, see Connect.
func (c Client) H3Transport(address string, early bool) *http3.Transport {
	dial := quic.DialAddr
	if early {
		dial = quic.DialAddrEarly
	}
	return &http3.Transport{
		TLSClientConfig:    c.TLS,
		QUICConfig:         &quic.Config{TokenStore: c.Tokens},
		DisableCompression: true,
		Dial: func(ctx context.Context, _ string, tlsConfig *tls.Config, config *quic.Config) (*quic.Conn, error) {
			return dial(ctx, address, tlsConfig, config)
		},
	}
}

// H2Transport returns an HTTP/2 transport that sends requests for every host to one address.
func (c Client) H2Transport(address string) *http.Transport {
	return &http.Transport{
		TLSClientConfig:    c.TLS,
		DisableCompression: true,
		ForceAttemptHTTP2:  true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
}

// Dial opens a QUIC connection. With a ticket it returns before the end of the handshake, and early data can be sent.
func (c Client) Dial(t *testing.T, address, alpn string) *quic.Conn {
	t.Helper()
	return c.opened(t, quic.DialAddrEarly, address, alpn)
}

// Connect opens a QUIC connection and waits for the end of its handshake. In quic-go, opening a stream earlier races with
// the arrival of the server's transport parameters (issue 4303).
func (c Client) Connect(t *testing.T, address, alpn string) *quic.Conn {
	t.Helper()
	return c.opened(t, quic.DialAddr, address, alpn)
}

type dialer func(context.Context, string, *tls.Config, *quic.Config) (*quic.Conn, error)

func (c Client) opened(t *testing.T, dial dialer, address, alpn string) *quic.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := dial(ctx, address, c.Config(alpn), &quic.Config{TokenStore: c.Tokens})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseWithError(0, "") })
	return conn
}

// DialPlain opens a QUIC connection without tokens and waits for the end of its handshake. The test must close it.
func (c Client) DialPlain(ctx context.Context, address, alpn string) (*quic.Conn, error) {
	return quic.DialAddr(ctx, address, c.Config(alpn), nil)
}

// Warm fetches a ticket and a token over a separate connection.
func (c Client) Warm(t *testing.T, address, alpn string) {
	t.Helper()
	conn := c.Dial(t, address, alpn)
	select {
	case <-conn.HandshakeComplete():
	case <-time.After(5 * time.Second):
		t.Fatal("no handshake")
	}
	Eventually(t, "a ticket", func() bool {
		session, ok := c.TLS.ClientSessionCache.Get(Host)
		return ok && session != nil
	})
	_ = conn.CloseWithError(0, "")
}

// Eventually waits up to 5 s for a condition that another goroutine fulfils. what names it in the error.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Question returns a query with ID 0, as used in DoQ and DoH.
func Question(name string, kind uint16) *dns.Msg {
	m := new(dns.Msg).SetQuestion(name+".", kind)
	m.Id = 0
	return m
}

// Notify returns a NOTIFY, which a server must not answer before the end of the handshake.
func Notify() *dns.Msg {
	m := new(dns.Msg).SetNotify("example.org.")
	m.Id = 0
	return m
}

// Padded adds the EDNS padding option to a query.
func Padded(m *dns.Msg) *dns.Msg {
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_PADDING{Padding: make([]byte, 10)}}
	return m
}

// Framed returns the wire format of a message after its two-byte length.
func Framed(t *testing.T, m *dns.Msg) []byte {
	t.Helper()
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)
}

// Send sends a message on a new stream, in the format of DoQ.
func Send(t *testing.T, conn *quic.Conn, m *dns.Msg) *quic.Stream {
	t.Helper()
	return SendRaw(t, conn, Framed(t, m))
}

// SendRaw sends bytes on a new stream and ends the stream. If the server's limit of streams is reached (RFC 9000, section
// 4.6), it waits up to 5 s.
func SendRaw(t *testing.T, conn *quic.Conn, wire []byte) *quic.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Write(wire); err != nil {
		t.Fatal(err)
	}
	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
	_ = stream.SetReadDeadline(time.Now().Add(5 * time.Second))
	return stream
}

// Receive reads the single answer of a stream, and the end of the stream.
func Receive(t *testing.T, stream *quic.Stream) *dns.Msg {
	t.Helper()
	wire, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	if len(wire) < 2 || int(binary.BigEndian.Uint16(wire)) != len(wire)-2 {
		t.Fatalf("%d bytes with a wrong length in front", len(wire))
	}
	m := new(dns.Msg)
	if err := m.Unpack(wire[2:]); err != nil {
		t.Fatal(err)
	}
	return m
}
