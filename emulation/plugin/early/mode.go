package early

import "errors"

// Mode is the handling of early data (0-RTT).
type Mode int32

const (
	// On answers early data on arrival if a replay is harmless.
	On Mode = iota
	// Off refuses early data and issues tickets without it. Sessions still resume.
	Off
	// Late accepts early data and answers it after the end of the handshake.
	Late
)

// ParseMode reads the value of the property `early_data`.
func ParseMode(value string) (Mode, error) {
	switch value {
	case "on":
		return On, nil
	case "off":
		return Off, nil
	case "late":
		return Late, nil
	}
	return On, errors.New("early_data is on, off or late, not '" + value + "'")
}
