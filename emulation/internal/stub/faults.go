package stub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// broken is the error of a query whose connection failed. The query may be repeated on a new connection.
type broken struct{ cause error }

func (e *broken) Error() string { return e.cause.Error() }
func (e *broken) Unwrap() error { return e.cause }

var (
	errSilent = errors.New("no sign of life from the upstream")
	errReset  = errors.New("connection reset on command")
	errStuck  = errors.New("the connection is stuck")
	errBusy   = errors.New("too many queries at once")
)

// isStreamReset reports whether the upstream reset a single stream and the connection continues.
func isStreamReset(err error) bool {
	stream, ok := errors.AsType[*quic.StreamError](err)
	return ok && stream.Remote
}

// describe returns a short and stable text for an error, for the metrics. crosslayer.dns uses the same texts.
func describe(err error) string {
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "certificate: " + certificate.Err.Error()
	}
	if alert, ok := errors.AsType[tls.AlertError](err); ok {
		return alert.Error() // begins with "tls: "
	}
	if stream, ok := errors.AsType[*quic.StreamError](err); ok {
		return fmt.Sprintf("stream reset with code 0x%x", uint64(stream.ErrorCode))
	}
	if application, ok := errors.AsType[*quic.ApplicationError](err); ok {
		return fmt.Sprintf("connection closed by the server with code 0x%x", uint64(application.ErrorCode))
	}
	if h3, ok := errors.AsType[*http3.Error](err); ok {
		return fmt.Sprintf("http/3 error %s", h3.ErrorCode)
	}
	if version, ok := errors.AsType[*quic.VersionNegotiationError](err); ok {
		return version.Error()
	}
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed by the server"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		errno, _ := errors.AsType[syscall.Errno](err)
		return "network: " + errno.Error()
	}
	return err.Error()
}
