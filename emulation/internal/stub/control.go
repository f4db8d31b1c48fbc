package stub

import "crosslayer.example/emulation/internal/control"

// commands returns the commands of the control socket.
func (s *stub) commands() control.Commands {
	reset := func(forget bool) func([]byte) any {
		return func([]byte) any {
			return struct {
				control.Reply
				Closed int `json:"closed"`
			}{control.OK, s.reset(forget)}
		}
	}
	commands := control.Commands{
		"ready": func([]byte) any {
			return struct {
				control.Reply
				Listen     string     `json:"listen"`
				Upstream   string     `json:"upstream"`
				Protocol   protocol   `json:"protocol"`
				Resumption resumption `json:"resumption"`
			}{control.OK, s.udp.LocalAddr().String(), s.settings.url, s.settings.upstream.protocol, s.settings.resumption}
		},
		"reset-sessions": reset(false),
		"forget":         reset(true),
		"stats": func([]byte) any {
			return struct {
				control.Reply
				Queries  uint64 `json:"queries"`
				Failures uint64 `json:"failures"`
				InFlight int    `json:"in_flight"`
				stats
			}{control.OK, s.metrics.queries.Load(), s.metrics.failures.Load(), len(s.slots), s.upstream.stats()}
		},
	}
	if s.gateway != nil {
		commands["carried"] = func([]byte) any {
			return struct {
				control.Reply
				Requests map[uint16]int `json:"requests"`
			}{control.OK, s.gateway.ports()}
		}
	}
	return commands
}
