package coalesce

import "errors"

// earlyDataMode says what becomes of early data (0-RTT).
type earlyDataMode int32

const (
	// earlyDataOn answers it as it arrives, where a replay does no harm.
	earlyDataOn earlyDataMode = iota
	// earlyDataOff refuses it, and no ticket offers it: sessions resume, and that is all.
	earlyDataOff
	// earlyDataLate accepts it and answers when the handshake is complete, like a listener that waits for that.
	earlyDataLate
)

func parseEarlyData(value string) (earlyDataMode, error) {
	switch value {
	case "on":
		return earlyDataOn, nil
	case "off":
		return earlyDataOff, nil
	case "late":
		return earlyDataLate, nil
	}
	return earlyDataOn, errors.New("early_data is on, off or late, not '" + value + "'")
}
