package coalesce

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	"crosslayer.example/emulation/internal/control"

	"github.com/miekg/dns"
)

// httpsRecords are HTTPS records (RFC 9460) that the control socket gave, by the lower-case name they are of. They stand
// before what the rest of the chain would answer, and need not be well-formed.
type httpsRecords struct {
	mu     sync.RWMutex
	byName map[string]httpsRecord
}

// httpsRecord is the answer to a query for an HTTPS record.
type httpsRecord struct {
	rdata string // hexadecimal
	fault string // servfail or silence instead of an answer; else empty
}

const faultServfail, faultSilence = "servfail", "silence"

// recordTTL is that of records of a test, seconds.
const recordTTL = 300

func (h *httpsRecords) of(r *dns.Msg) (record httpsRecord, ok bool) {
	if len(r.Question) != 1 || r.Question[0].Qtype != dns.TypeHTTPS {
		return httpsRecord{}, false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	record, ok = h.byName[dns.CanonicalName(r.Question[0].Name)]
	return record, ok
}

// answer is the reply to r.
func (r httpsRecord) answer(query *dns.Msg) *dns.Msg {
	m := new(dns.Msg).SetReply(query)
	m.Authoritative = true
	if r.fault == faultServfail {
		m.Rcode = dns.RcodeServerFailure
		return m
	}
	q := query.Question[0]
	header := dns.RR_Header{Name: q.Name, Rrtype: dns.TypeHTTPS, Class: q.Qclass, Ttl: recordTTL}
	m.Answer = []dns.RR{&dns.RFC3597{Hdr: header, Rdata: r.rdata}}
	return m
}

// setHTTPSRecord takes the command https-record.
func (s *server) setHTTPSRecord(object []byte) any {
	var command struct {
		Name  string  `json:"name"`
		Rdata *string `json:"rdata"`
		Fault string  `json:"fault"`
	}
	if err := json.Unmarshal(object, &command); err != nil {
		return control.Refusal(err)
	}
	if _, ok := dns.IsDomainName(command.Name); !ok || command.Name == "" {
		return control.Refusal(fmt.Errorf("%q is no domain name", command.Name))
	}
	records, name := &s.common.records, dns.CanonicalName(command.Name)
	record := httpsRecord{fault: command.Fault}
	switch {
	case command.Rdata != nil && command.Fault != "":
		return control.Refusal(fmt.Errorf("either rdata or fault"))
	case command.Rdata != nil:
		if wire, err := hex.DecodeString(*command.Rdata); err != nil || len(wire) > dns.MaxMsgSize/2 {
			return control.Refusal(fmt.Errorf("rdata is hexadecimal and no more than %d bytes: %v", dns.MaxMsgSize/2, err))
		}
		record.rdata = *command.Rdata
	case command.Fault != "" && command.Fault != faultServfail && command.Fault != faultSilence:
		return control.Refusal(fmt.Errorf("unknown fault %q", command.Fault))
	}
	records.mu.Lock()
	defer records.mu.Unlock()
	if command.Rdata == nil && command.Fault == "" {
		delete(records.byName, name)
		return control.OK
	}
	if records.byName == nil {
		records.byName = map[string]httpsRecord{}
	}
	records.byName[name] = record
	return control.OK
}
