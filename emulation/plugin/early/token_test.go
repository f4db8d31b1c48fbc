package early

import (
	"slices"
	"testing"

	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// A retransmitted token is reported again. A client that discarded the first one, because it had no ticket, stores the second.
func TestRetransmittedTokenIsReported(t *testing.T) {
	var reported []bool
	watch := &packetWatch{known: &peer{}, sent: func(behindTicket bool) { reported = append(reported, behindTicket) }}
	var recorder qlogwriter.Recorder = watch
	packet := qlog.PacketSent{
		Header: qlog.PacketHeader{PacketType: qlog.PacketType1RTT},
		Frames: []qlog.Frame{{Frame: &qlog.NewTokenFrame{}}, {Frame: &qlog.CryptoFrame{}}},
	}
	for range 2 {
		recorder.RecordEvent(packet)
	}
	if !slices.Equal(reported, []bool{false, true}) {
		t.Errorf("reported %v", reported)
	}
}
