package early

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
)

// Error codes of DNS over QUIC (RFC 9250, section 4.3).
const (
	DoQNoError          = 0x0
	DoQInternalError    = 0x1
	DoQProtocolError    = 0x2
	DoQRequestCancelled = 0x3
	DoQExcessiveLoad    = 0x4
)

// DoQ is the name of DNS over QUIC as a listener, and its application protocol.
const DoQ = "doq"

// protocolError is a violation of the protocol, for which the connection is closed (RFC 9250, section 4.3.3).
type protocolError string

func (e protocolError) Error() string { return string(e) }

// DoQServer answers DNS over QUIC.
type DoQServer struct {
	Policy *Policy
	Conns  *Conns
	Chain  *Chain
	// ALPN is the application protocol of the TLS handshake; empty for doq.
	ALPN string
}

// Listen opens the UDP socket.
func (s *DoQServer) Listen(address string, secured *tls.Config) (*Listener, error) {
	return s.Policy.Listen(address, Protocol{Name: DoQ, ALPN: cmp.Or(s.ALPN, DoQ), NoError: DoQNoError, ExcessiveLoad: DoQExcessiveLoad}, secured, &quic.Config{
		MaxIncomingUniStreams: -1, // DoQ has none (RFC 9250, section 4.2)
		// Most answers fit into one packet: probes for a larger MTU would only add packets to a short exchange.
		DisablePathMTUDiscovery: true,
	})
}

// Serve starts to answer queries, until the listener closes. It does not block.
func (s *DoQServer) Serve(listener *Listener) {
	listener.Serve(s.Conns, func(conn *Conn) {
		conn.ServeStreams(func(stream *quic.Stream) {
			from := Origin{
				Listener: DoQ, Remote: conn.RemoteAddr().String(), Arrival: time.Now(),
				HandshakeComplete: !conn.IsEarly(stream.StreamID()), Resumed: conn.ConnectionState().TLS.DidResume,
				AddressValidated: conn.AddressValidated(), KeyShare: conn.KeyShare(), Initials: conn.Initials(),
			}
			err := s.serveStream(conn, stream, from)
			var wrong protocolError
			switch {
			case errors.As(err, &wrong):
				conn.CloseAfterHandshake(context.Background(), DoQProtocolError, wrong.Error())
			case errors.Is(err, os.ErrDeadlineExceeded):
				// A server must not send STOP_SENDING, so it cannot end a single stream (RFC 9250, section 4.3.1).
				conn.CloseAfterHandshake(context.Background(), DoQExcessiveLoad, "a stream took too long")
			}
		})
	})
}

// serveStream reads and answers the query of a stream. It ends both directions of the stream: until both have ended, quic-go
// keeps the stream and counts it against the connection's limit.
func (s *DoQServer) serveStream(conn *Conn, stream *quic.Stream, from Origin) error {
	cancelled := func() {
		if _, reset := errors.AsType[*quic.StreamError](context.Cause(stream.Context())); reset {
			stream.CancelWrite(DoQRequestCancelled) // quic-go does not end the send direction on STOP_SENDING
		}
	}
	defer context.AfterFunc(stream.Context(), cancelled)()
	wire, ended, err := readMessage(stream)
	if err != nil {
		stream.CancelWrite(DoQRequestCancelled) // the client reset the stream (RFC 9250, section 4.3.1)
		return err
	}
	query, err := parseQuery(wire)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	watched := make(chan error, 1)
	if ended {
		watched <- nil
	} else {
		go func() {
			err := awaitEnd(stream)
			if err != nil {
				stream.CancelWrite(DoQRequestCancelled)
				cancel(err)
			}
			watched <- err
		}()
	}
	if err := s.answer(ctx, conn, stream, Query{query, wire, from, conn.LocalAddr(), streamAddr(conn.RemoteAddr())}); err != nil {
		if ctx.Err() != nil {
			stream.CancelWrite(DoQRequestCancelled)
		} else {
			stream.CancelWrite(DoQInternalError)
		}
	}
	return <-watched
}

// answer writes the messages of the answer to a query and ends the stream.
func (s *DoQServer) answer(ctx context.Context, conn *Conn, stream *quic.Stream, query Query) error {
	if !s.Policy.MayAnswer(ctx, conn, query.Opcode == dns.OpcodeQuery) {
		return errors.New("the handshake failed")
	}
	if query.Origin.HandshakeComplete {
		conn.Announce()
	}
	var last []byte
	write := func() error {
		_ = stream.SetWriteDeadline(time.Now().Add(s.Policy.WriteTimeout))
		_, err := stream.Write(last)
		return err
	}
	n := s.Chain.Resolve(ctx, query, func(_ *dns.Msg, wire []byte) (err error) {
		if last != nil {
			err = write()
		}
		last = append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(wire)), uint16(len(wire))), wire...) // #nosec G115
		return err
	})
	if n == 0 {
		return errors.New("no answer")
	}
	// Written last and followed by the end of the stream at once, so that both leave in the same packet.
	if err := write(); err != nil {
		return err
	}
	return stream.Close()
}

// streamAddr returns the client's address for the plugins. It is a TCP address, because plugins truncate answers to UDP
// addresses.
func streamAddr(remote net.Addr) net.Addr {
	if udp, ok := remote.(*net.UDPAddr); ok {
		return net.TCPAddrFromAddrPort(udp.AddrPort())
	}
	return remote
}

// readMessage reads a message with its two-byte length (RFC 9250, section 4.2). ended is true if the end of the stream was
// read too. The buffer grows with the data received, not to the announced length.
func readMessage(stream io.Reader) (wire []byte, ended bool, err error) {
	buffer := make([]byte, 0, 512)
	for {
		n, err := stream.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		want := 2
		if len(buffer) >= 2 {
			want += int(binary.BigEndian.Uint16(buffer))
		}
		switch {
		case len(buffer) > 2 && len(buffer) > want:
			return nil, false, errTwoQueries
		case len(buffer) >= 2 && len(buffer) == want:
			return buffer[2:], err == io.EOF, nil
		case err == io.EOF:
			return nil, false, protocolError("stream ended inside a message")
		case err != nil:
			return nil, false, err
		}
		if len(buffer) == cap(buffer) {
			buffer = slices.Grow(buffer, min(want-len(buffer)+1, cap(buffer))) // one byte more, to detect excess data
		}
	}
}

const errTwoQueries = protocolError("more than one query on a stream")

// awaitEnd reads the end of a stream after its query.
func awaitEnd(stream io.Reader) error {
	n, err := stream.Read(make([]byte, 1))
	switch {
	case n > 0:
		return errTwoQueries
	case err == io.EOF:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return protocolError("no end of the stream after the query")
	}
	return err
}

func parseQuery(wire []byte) (*dns.Msg, error) {
	query, err := UnpackRequest(wire)
	switch {
	case err != nil:
		return nil, protocolError("malformed query")
	case query.Id != 0:
		return nil, protocolError("message ID is not 0")
	case HasOption(query, dns.EDNS0TCPKEEPALIVE):
		return nil, protocolError("edns-tcp-keepalive option")
	}
	return query, nil
}
