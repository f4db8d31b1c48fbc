package early

import (
	"slices"

	"github.com/miekg/dns"
)

// PaddingBlock is the block length of answers, bytes (RFC 8467, section 4.1).
const PaddingBlock = 468

// WantsPadding reports whether the answer to a query must be padded on an encrypted transport (RFC 7830, section 4).
func WantsPadding(query *dns.Msg) bool { return HasOption(query, dns.EDNS0PADDING) }

// Pad pads m to a multiple of PaddingBlock and replaces existing padding (RFC 8467, section 3).
func Pad(m *dns.Msg) {
	opt := m.IsEdns0()
	if opt == nil {
		m.SetEdns0(dns.DefaultMsgSize, false) // size and flags are set from the query when the message is written
		opt = m.IsEdns0()
	}
	opt.Option = slices.DeleteFunc(opt.Option, func(option dns.EDNS0) bool { return option.Option() == dns.EDNS0PADDING })
	padding := new(dns.EDNS0_PADDING)
	opt.Option = append(opt.Option, padding)
	m.Compress = false // CoreDNS sends messages that fit without compression; the length below must be that on the wire
	if length := m.Len(); length <= dns.MaxMsgSize-PaddingBlock {
		padding.Padding = make([]byte, (PaddingBlock-length%PaddingBlock)%PaddingBlock)
	}
}

// TwoOPTs reports whether a message has more than one OPT record, which is an error (RFC 6891, section 6.1.1).
func TwoOPTs(m *dns.Msg) bool {
	n := 0
	for _, record := range m.Extra {
		if isOPT(record) {
			n++
		}
	}
	return n > 1
}

// ClearReservedFlags clears the Z bits of a query's OPT record. CoreDNS copies the record into the answer, where these bits
// must be zero (RFC 6891, section 6.1.4).
func ClearReservedFlags(query *dns.Msg) {
	const reserved = 1<<15 - 1 // all flags but DO
	for _, record := range query.Extra {
		if isOPT(record) {
			record.Header().Ttl &^= reserved
		}
	}
}

// RemoveOPT removes the OPT record of an answer to a query without EDNS (RFC 6891, section 7).
func RemoveOPT(m *dns.Msg) { m.Extra = slices.DeleteFunc(m.Extra, isOPT) }

func isOPT(record dns.RR) bool { return record.Header().Rrtype == dns.TypeOPT }

// HasOption reports whether a message has an EDNS option.
func HasOption(m *dns.Msg, code uint16) bool {
	opt := m.IsEdns0()
	if opt == nil {
		return false
	}
	for _, option := range opt.Option {
		if option.Option() == code {
			return true
		}
	}
	return false
}
