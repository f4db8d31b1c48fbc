package early

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"crosslayer.example/emulation/internal/servertest"

	"github.com/miekg/dns"
)

// The content of a DoQ stream is either one complete query or a protocol error. Queries can be examined without a panic.
func FuzzDoQMessage(f *testing.F) {
	query, err := servertest.Padded(servertest.Question(testHost, dns.TypeA)).Pack()
	if err != nil {
		f.Fatal(err)
	}
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	for _, seed := range [][]byte{framed, framed[:1], framed[:20], append(framed, framed...), {0, 0}, {0xff, 0xff, 1}, nil} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		wire, _, err := readMessage(bytes.NewReader(stream))
		var wrong protocolError
		if err != nil {
			if !errors.As(err, &wrong) {
				t.Fatalf("%x: %v", stream, err)
			}
			return
		}
		if len(wire)+2 != len(stream) || cap(wire) > 2*len(stream)+512 {
			t.Fatalf("%d of %d bytes, room for %d", len(wire), len(stream), cap(wire))
		}
		m, err := parseQuery(wire)
		if err != nil {
			if !errors.As(err, &wrong) {
				t.Fatalf("%x: %v", stream, err)
			}
			return
		}
		if m.Id != 0 || HasOption(m, dns.EDNS0TCPKEEPALIVE) {
			t.Fatalf("taken for a query: %v", m)
		}
		WantsPadding(m)
		_ = TwoOPTs(m)
	})
}
