package coalesce

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"crosslayer.example/emulation/internal/control"
	"crosslayer.example/emulation/plugin/early"
)

// commands returns the commands of the control socket.
func (s *server) commands() control.Commands {
	return control.Commands{
		"ready": func([]byte) any {
			return struct {
				control.Reply
				Listeners []listening `json:"listeners"`
			}{control.OK, s.listening}
		},
		"close-connections": s.closeConnections,
		"rotate-ticket-keys": func([]byte) any {
			s.tickets.Rotate()
			return control.OK
		},
		"alt-svc":     s.setAltSvc,
		"early-data":  s.setEarlyData,
		"certificate": s.setCertificate,
		"ech":         s.setECH,
		"answer":      s.setAnswer,
		"stats": func([]byte) any {
			totals := s.events.totals()
			open := map[string]int{}
			for _, listener := range []string{listenerH3, listenerDoQ} {
				open[listener] = s.connections.Count(listener)
			}
			return struct {
				control.Reply
				Open        map[string]int `json:"open"`
				Connections map[string]int `json:"connections"`
				Requests    map[string]int `json:"requests"`
				Queries     map[string]int `json:"queries"`
				Tokens      map[string]int `json:"tokens"`
			}{control.OK, open, totals["connections"], totals["requests"], totals["queries"], totals["tokens"]}
		},
	}
}

func (s *server) closeConnections(object []byte) any {
	var command struct {
		Listener string `json:"listener"`
	}
	if err := json.Unmarshal(object, &command); err != nil {
		return control.Refusal(err)
	}
	if !slices.Contains([]string{"", listenerH3, listenerDoQ, listenerHTTPS}, command.Listener) {
		return control.Refusal(fmt.Errorf("unknown listener %q", command.Listener))
	}
	closed := 0
	if command.Listener == listenerHTTPS {
		closed = s.common.streams.close()
	} else {
		closed = s.connections.Close(command.Listener)
	}
	return struct {
		control.Reply
		Closed int `json:"closed"`
	}{control.OK, closed}
}

// setAltSvc sets the header Alt-Svc of responses over TCP. An empty value removes it.
func (s *server) setAltSvc(object []byte) any {
	var command struct {
		Value string `json:"value"`
	}
	if err := json.Unmarshal(object, &command); err != nil {
		return control.Refusal(err)
	}
	if command.Value == "" {
		s.common.altSvc.Store(nil)
		return control.OK
	}
	s.common.altSvc.Store(&command.Value)
	return control.OK
}

func (s *server) setEarlyData(object []byte) any {
	var command struct {
		Mode string `json:"mode"`
	}
	if err := json.Unmarshal(object, &command); err != nil {
		return control.Refusal(err)
	}
	mode, err := early.ParseMode(command.Mode)
	if err != nil {
		return control.Refusal(err)
	}
	s.policy.SetMode(mode)
	return control.OK
}

func (s *server) setCertificate(object []byte) any {
	var command struct {
		Certificate string `json:"certificate"`
		Key         string `json:"key"`
	}
	if err := json.Unmarshal(object, &command); err != nil {
		return control.Refusal(err)
	}
	certificate, err := tls.LoadX509KeyPair(command.Certificate, command.Key)
	if err != nil {
		return control.Refusal(err)
	}
	s.common.certificate.Store(&certificate)
	return control.OK
}

// setECH sets an ECHConfig and its private key, both in hexadecimal. Empty values remove them: the server then does not
// decrypt hellos and treats the ECH extension as GREASE.
func (s *server) setECH(object []byte) any {
	var command struct {
		Config string `json:"config"`
		Key    string `json:"key"`
	}
	if err := json.Unmarshal(object, &command); err != nil {
		return control.Refusal(err)
	}
	if command.Config == "" && command.Key == "" {
		s.common.ech.Store(nil)
		return control.OK
	}
	config, err := hex.DecodeString(command.Config)
	if err != nil {
		return control.Refusal(fmt.Errorf("config is no ECHConfig in hexadecimal: %w", err))
	}
	key, err := hex.DecodeString(command.Key)
	if err != nil {
		return control.Refusal(fmt.Errorf("key is no private key in hexadecimal: %w", err))
	}
	opener := tls.EncryptedClientHelloKey{Config: config, PrivateKey: key, SendAsRetry: true}
	if err := s.tryECH(opener); err != nil { // an invalid pair would make every hello with the extension fail
		return control.Refusal(err)
	}
	s.common.ech.Store(&opener)
	return control.OK
}

// tryECH verifies that an ECHConfig and a private key match, by a handshake in memory with an encrypted hello.
func (s *server) tryECH(opener tls.EncryptedClientHelloKey) error {
	if s.tls == nil {
		return errors.New("there is no certificate: put the tls plugin into the same server block")
	}
	list := append(binary.BigEndian.AppendUint16(nil, uint16(len(opener.Config))), opener.Config...) // #nosec G115 -- too long a config makes the handshake fail
	there, here := net.Pipe()
	defer there.Close()
	defer here.Close()
	deadline := time.Now().Add(time.Second)
	_, _ = there.SetDeadline(deadline), here.SetDeadline(deadline)
	server := tls.Server(there, &tls.Config{
		GetCertificate: s.tls.GetCertificate, EncryptedClientHelloKeys: []tls.EncryptedClientHelloKey{opener},
		SessionTicketsDisabled: true, MinVersion: tls.VersionTLS13,
	})
	client := tls.Client(here, &tls.Config{
		ServerName: "name.invalid", EncryptedClientHelloConfigList: list, MinVersion: tls.VersionTLS13,
		InsecureSkipVerify: true, // #nosec G402 -- only ECH is tested
	})
	opened := make(chan error, 1)
	go func() { opened <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		_ = here.Close()
		return fmt.Errorf("config is no ECHConfig of that key: %w", errors.Join(err, <-opened))
	}
	return nil
}
