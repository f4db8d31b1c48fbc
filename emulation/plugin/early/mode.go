package early

import "errors"

// Mode says what becomes of early data (0-RTT).
type Mode int32

const (
	// On answers it as it arrives, where a replay does no harm.
	On Mode = iota
	// Off refuses it, and no ticket offers it: sessions resume, and that is all.
	Off
	// Late accepts it and answers when the handshake is complete, like a listener that waits for that.
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
