package stub

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

const (
	headerBytes     = 12
	maxMessageBytes = 65535
	udpPayloadBytes = 1232 // UDP payload size in OPT records to upstream and client (DNS flag day 2020)
	paddingBlock    = 128  // RFC 8467, section 4.1
)

// badAnswer is the fault of an answer that arrived. Queries are not repeated after it.
type badAnswer string

func (e badAnswer) Error() string { return string(e) }

const (
	errMalformed     = badAnswer("malformed")
	errWrongID       = badAnswer("wrong id")
	errNotResponse   = badAnswer("not a response")
	errWrongQuestion = badAnswer("wrong question")
	errOversized     = badAnswer("oversized")
	errKeepalive     = badAnswer("edns-tcp-keepalive over DoQ")
)

// parse parses a message. Unlike Unpack, it returns an error if a message has fewer records than its header announces.
func parse(wire []byte) (*dns.Msg, error) {
	m := new(dns.Msg)
	if err := m.Unpack(wire); err != nil {
		return nil, err
	}
	if len(wire) == headerBytes {
		return m, nil // some servers refuse a query with only a header
	}
	for i, n := range []int{len(m.Question), len(m.Answer), len(m.Ns), len(m.Extra)} {
		if int(binary.BigEndian.Uint16(wire[4+2*i:])) != n {
			return nil, errors.New("sections are incomplete")
		}
	}
	return m, nil
}

// twoOPTs reports whether a message has more than one OPT record, which is an error (RFC 6891, section 6.1.1).
func twoOPTs(m *dns.Msg) bool {
	n := 0
	for _, record := range m.Extra {
		if record.Header().Rrtype == dns.TypeOPT {
			n++
		}
	}
	return n > 1
}

// upstreamQuery returns the query for the upstream: the client's question and flags with ID 0. EDNS is hop-by-hop: of the
// client's options only the client subnet (RFC 7871) is forwarded.
func upstreamQuery(client *dns.Msg, p protocol) ([]byte, error) {
	query := &dns.Msg{Question: client.Question}
	query.RecursionDesired = client.RecursionDesired
	query.AuthenticatedData = client.AuthenticatedData
	query.CheckingDisabled = client.CheckingDisabled
	query.SetEdns0(udpPayloadBytes, false)
	opt := query.IsEdns0()
	if asked := client.IsEdns0(); asked != nil {
		opt.SetDo(asked.Do())
		for _, option := range asked.Option {
			if option.Option() == dns.EDNS0SUBNET {
				opt.Option = append(opt.Option, option)
			}
		}
	}
	if p.encrypted() {
		padding := new(dns.EDNS0_PADDING)
		opt.Option = append(opt.Option, padding)
		padding.Padding = make([]byte, (paddingBlock-query.Len()%paddingBlock)%paddingBlock)
	}
	return query.Pack()
}

// checkAnswer parses an answer and verifies its ID and question.
func checkAnswer(wire []byte, id uint16, question dns.Question) (*dns.Msg, error) {
	switch {
	case len(wire) < headerBytes:
		return nil, errMalformed
	case binary.BigEndian.Uint16(wire) != id:
		return nil, errWrongID
	case !isResponse(wire):
		return nil, errNotResponse
	}
	m, err := parse(wire)
	if err != nil {
		return nil, errMalformed
	}
	if m.Opcode != dns.OpcodeQuery {
		return nil, errWrongQuestion
	}
	if len(m.Question) == 0 && m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return m, nil // a refusal need not repeat the question
	}
	if len(m.Question) != 1 || !sameQuestion(m.Question[0], question) {
		return nil, errWrongQuestion
	}
	return m, nil
}

func sameQuestion(a, b dns.Question) bool {
	return a.Qtype == b.Qtype && a.Qclass == b.Qclass && strings.EqualFold(a.Name, b.Name)
}

func isResponse(wire []byte) bool  { return wire[2]&0x80 != 0 }
func isTruncated(wire []byte) bool { return wire[2]&0x02 != 0 }

// clientAnswer converts the upstream's answer to the answer for the client. It has the client's ID and the client's spelling
// of the question, and EDNS only if the client's query has EDNS.
func clientAnswer(client, answer *dns.Msg) *dns.Msg {
	received := answer.IsEdns0()
	answer.Id = client.Id
	answer.Question = client.Question
	answer.RecursionDesired = client.RecursionDesired
	answer.Extra = slices.DeleteFunc(answer.Extra, func(record dns.RR) bool { return record.Header().Rrtype == dns.TypeOPT })
	if ours := addEDNS(client, answer); ours != nil && received != nil {
		for _, option := range received.Option {
			switch option.Option() {
			case dns.EDNS0PADDING, dns.EDNS0COOKIE, dns.EDNS0TCPKEEPALIVE: // hop-by-hop
			default:
				ours.Option = append(ours.Option, option)
			}
		}
	} else if ours == nil && answer.Rcode > 0xF {
		answer.Rcode = dns.RcodeServerFailure // extended rcodes need EDNS
	}
	return answer
}

// failure returns the stub's own answer to a query that cannot be forwarded or got no valid answer. text is the extra text
// of the Extended DNS Error (RFC 8914).
func failure(client *dns.Msg, rcode int, text string) *dns.Msg {
	answer := new(dns.Msg).SetRcode(client, rcode)
	answer.RecursionAvailable = true
	if opt := addEDNS(client, answer); opt != nil && rcode == dns.RcodeServerFailure {
		opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNetworkError, ExtraText: text})
	}
	return answer
}

// addEDNS adds an OPT record to the answer if the query has one (RFC 6891, section 7), and returns it.
func addEDNS(client, answer *dns.Msg) *dns.OPT {
	asked := client.IsEdns0()
	if asked == nil {
		return nil
	}
	answer.SetEdns0(udpPayloadBytes, asked.Do())
	return answer.IsEdns0()
}

// datagramLimit returns the largest answer that the client accepts over UDP, bytes.
func datagramLimit(client *dns.Msg) int {
	if opt := client.IsEdns0(); opt != nil {
		return max(dns.MinMsgSize, int(opt.UDPSize()))
	}
	return dns.MinMsgSize
}

// framed returns a message after its two-byte length, as over TCP (RFC 1035, section 4.2.2).
func framed(wire []byte) []byte {
	stream := make([]byte, 2, 2+len(wire))
	binary.BigEndian.PutUint16(stream, uint16(len(wire))) // #nosec G115 -- no message is longer than 65535 bytes
	return append(stream, wire...)
}
