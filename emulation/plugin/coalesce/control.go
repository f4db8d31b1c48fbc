package coalesce

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"slices"

	"crosslayer.example/emulation/internal/control"
	"crosslayer.example/emulation/plugin/early"
)

// commands are what the control socket takes.
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
		"early-data":  s.setEarlyData,
		"certificate": s.setCertificate,
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
	if !slices.Contains([]string{"", listenerH3, listenerDoQ}, command.Listener) {
		return control.Refusal(fmt.Errorf("unknown listener %q", command.Listener))
	}
	return struct {
		control.Reply
		Closed int `json:"closed"`
	}{control.OK, s.connections.Close(command.Listener)}
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
