package early

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// Error codes of DNS over QUIC (RFC 9250, section 4.3).
const (
	DoQNoError       = 0x0
	DoQInternalError = 0x1
	DoQProtocolError = 0x2
)

// DoQ is the name of DNS over QUIC as a listener, and its application protocol.
const DoQ = "doq"

// breach is a breach of RFC 9250, section 4.3.3: the connection is closed.
type breach string

func (e breach) Error() string { return string(e) }

// DoQServer answers DNS over QUIC.
type DoQServer struct {
	Policy *Policy
	Conns  *Conns
	Chain  *Chain
}

// Listen opens the UDP socket.
func (s *DoQServer) Listen(address string, secured *tls.Config) (*Listener, error) {
	return s.Policy.Listen(address, DoQ, secured, &quic.Config{
		MaxIncomingUniStreams: -1, // DoQ has none (RFC 9250, section 4.2)
		// Answers fit into one packet: searching for a larger one would only add packets to a short exchange.
		DisablePathMTUDiscovery: true,
	})
}

// Serve accepts connections before their handshake is complete, until the listener closes.
func (s *DoQServer) Serve(listener *Listener) {
	for {
		conn, err := listener.Accept(context.Background())
		if err != nil {
			return
		}
		go s.serveConn(s.Conns.Track(DoQ, conn, DoQNoError))
	}
}

func (s *DoQServer) serveConn(conn *Conn) {
	for {
		stream, err := conn.AcceptStream(context.Background())
		if err != nil {
			return
		}
		from := Origin{
			Listener: DoQ, Remote: conn.RemoteAddr().String(), Arrival: time.Now(),
			HandshakeComplete: conn.IsComplete(), Resumed: conn.ConnectionState().TLS.DidResume,
		}
		go func() {
			err := s.serveStream(conn, stream, from)
			var wrong breach
			switch {
			case errors.As(err, &wrong):
				_ = conn.CloseWithError(DoQProtocolError, wrong.Error())
			case err != nil:
				stream.CancelRead(DoQInternalError)
				stream.CancelWrite(DoQInternalError)
			}
		}()
	}
}

// serveStream reads the one query of a stream and answers it.
func (s *DoQServer) serveStream(conn *Conn, stream *quic.Stream, from Origin) error {
	query, err := readQuery(stream)
	if err != nil {
		return err
	}
	if !s.Policy.MayAnswer(stream.Context(), conn, query.Opcode == dns.OpcodeQuery) {
		return errors.New("the handshake failed")
	}
	if from.HandshakeComplete {
		conn.Announce()
	}
	answer := s.Chain.Resolve(stream.Context(), from, conn.LocalAddr(), streamAddr(conn.RemoteAddr()), query)
	if answer == nil {
		return errors.New("no answer")
	}
	wire, err := packWithLength(answer)
	if err != nil {
		return err
	}
	// One write, and the end of the stream right after it, so that both leave in the same packet.
	if _, err := stream.Write(wire); err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	if n, _ := stream.Read(make([]byte, 1)); n > 0 {
		return breach("more than one query on a stream")
	}
	return nil
}

// streamAddr is a client's address as the plugins get it: of TCP, where answers are not cut to a datagram.
func streamAddr(remote net.Addr) net.Addr {
	if udp, ok := remote.(*net.UDPAddr); ok {
		return net.TCPAddrFromAddrPort(udp.AddrPort())
	}
	return remote
}

// readQuery reads a query with its two-byte length (RFC 9250, section 4.2).
func readQuery(stream io.Reader) (*dns.Msg, error) {
	var length [2]byte
	if _, err := io.ReadFull(stream, length[:]); err != nil {
		return nil, truncated(err)
	}
	wire := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(stream, wire); err != nil {
		return nil, truncated(err)
	}
	query, err := dnsutil.UnpackRequest(wire)
	switch {
	case err != nil:
		return nil, breach("malformed query")
	case query.Id != 0:
		return nil, breach("message ID is not 0")
	case HasOption(query, dns.EDNS0TCPKEEPALIVE):
		return nil, breach("edns-tcp-keepalive option")
	}
	return query, nil
}

// truncated turns the end of a stream inside a message into the breach it is; errors of the stream stay what they are.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return breach("stream ended inside a message")
	}
	return err
}

func packWithLength(m *dns.Msg) ([]byte, error) {
	wire := make([]byte, 2, 2+PaddingBlock)
	packed, err := m.Pack()
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint16(wire, uint16(len(packed))) // #nosec G115 -- Pack refuses longer messages
	return append(wire, packed...), nil
}
