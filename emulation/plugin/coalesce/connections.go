package coalesce

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"time"

	"crosslayer.example/emulation/plugin/early"
)

// Names of the listeners, in events and on the control socket.
const (
	listenerH3    = "h3"
	listenerDoQ   = early.DoQ
	listenerHTTPS = "https"
	listenerDoT   = "dot"
)

// reportQUICConnection writes the event of a QUIC connection.
func reportQUICConnection(c *early.Conn, events *eventLog) {
	state := c.ConnectionState()
	event := newConnectionEvent(c.Listener, c.RemoteAddr(), c.LocalAddr(), state.TLS)
	event.EarlyData = state.Used0RTT
	event.AddressValidated = c.AddressValidated()
	event.QUICVersion = state.Version.String()
	if !c.IsComplete() {
		event.Error = context.Cause(c.Context()).Error()
	}
	events.write(event)
}

func newConnectionEvent(listener string, remote, local net.Addr, state tls.ConnectionState) connectionEvent {
	return connectionEvent{
		Event: "connection", Time: time.Now().UnixNano(), Listener: listener,
		Remote: remote.String(), Local: local.String(),
		ALPN: state.NegotiatedProtocol, ServerName: state.ServerName, Resumed: state.DidResume,
		TLSVersion: strings.Replace(tls.VersionName(state.Version), " ", "v", 1),
	}
}

// reportToken returns a function that writes the event of an address-validation token sent to a client.
func reportToken(listener string, events *eventLog) func(remote net.Addr, behindTicket bool) {
	return func(remote net.Addr, behindTicket bool) {
		events.write(tokenEvent{
			Event: "token", Time: time.Now().UnixNano(), Listener: listener, Remote: remote.String(), BehindTicket: behindTicket,
		})
	}
}

// reportTLSConnections makes config write an event for every TLS connection over TCP, when the server has finished its part
// of the handshake.
func reportTLSConnections(config *tls.Config, listener string, events *eventLog) {
	base := config.Clone()
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		reporting := base.Clone()
		remote, local := hello.Conn.RemoteAddr(), hello.Conn.LocalAddr()
		reporting.VerifyConnection = func(state tls.ConnectionState) error {
			events.write(newConnectionEvent(listener, remote, local, state))
			return nil
		}
		return reporting, nil
	}
}
