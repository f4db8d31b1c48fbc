package coalesce

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// Error codes of DNS over QUIC (RFC 9250, section 4.3).
const (
	doqNoError       = 0x0
	doqInternalError = 0x1
	doqProtocolError = 0x2
)

// errDoQProtocol is a breach of RFC 9250, section 4.3.3: the connection is closed.
type errDoQProtocol string

func (e errDoQProtocol) Error() string { return string(e) }

// serveDoQ accepts connections before their handshake is complete, until the listener closes.
func (s *server) serveDoQ(listener *quic.EarlyListener) {
	for {
		conn, err := listener.Accept(context.Background())
		if err != nil {
			return
		}
		go s.serveDoQConnection(s.connections.track(listenerDoQ, conn))
	}
}

func (s *server) serveDoQConnection(conn *connection) {
	for {
		stream, err := conn.AcceptStream(context.Background())
		if err != nil {
			return
		}
		from := origin{
			listener: listenerDoQ, remote: conn.RemoteAddr().String(), arrival: time.Now(), encrypted: true,
			handshakeComplete: conn.handshakeComplete(), resumed: conn.ConnectionState().TLS.DidResume,
		}
		go func() {
			err := s.serveDoQStream(conn, stream, from)
			var breach errDoQProtocol
			switch {
			case errors.As(err, &breach):
				_ = conn.CloseWithError(doqProtocolError, breach.Error())
			case err != nil:
				stream.CancelRead(doqInternalError)
				stream.CancelWrite(doqInternalError)
			}
		}()
	}
}

// serveDoQStream reads the one query of a stream and answers it.
func (s *server) serveDoQStream(conn *connection, stream *quic.Stream, from origin) error {
	query, err := readDoQ(stream)
	if err != nil {
		return err
	}
	if !s.mayAnswer(stream.Context(), conn, query.Opcode == dns.OpcodeQuery) {
		return errors.New("the handshake failed")
	}
	if from.handshakeComplete {
		conn.report()
	}
	answer := s.resolve(stream.Context(), from, conn.LocalAddr(), remoteAddr(from.remote), query)
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
		return errDoQProtocol("more than one query on a stream")
	}
	return nil
}

// readDoQ reads a query with its two-byte length (RFC 9250, section 4.2).
func readDoQ(stream io.Reader) (*dns.Msg, error) {
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
		return nil, errDoQProtocol("malformed query")
	case query.Id != 0:
		return nil, errDoQProtocol("message ID is not 0")
	case hasOption(query, dns.EDNS0TCPKEEPALIVE):
		return nil, errDoQProtocol("edns-tcp-keepalive option")
	}
	return query, nil
}

// truncated turns the end of a stream inside a message into the breach it is; errors of the stream stay what they are.
func truncated(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errDoQProtocol("stream ended inside a message")
	}
	return err
}

func packWithLength(m *dns.Msg) ([]byte, error) {
	wire := make([]byte, 2, 2+paddingBlock)
	packed, err := m.Pack()
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint16(wire, uint16(len(packed))) // #nosec G115 -- Pack refuses longer messages
	return append(wire, packed...), nil
}
