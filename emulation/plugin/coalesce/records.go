package coalesce

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"crosslayer.example/emulation/internal/control"

	"github.com/miekg/dns"
)

// givenAnswers holds the answers that the control socket has set, by the name in lower case and the type of the query. They
// replace the answers of the next plugins. Their records may be malformed.
type givenAnswers struct {
	mu         sync.RWMutex
	byQuestion map[givenQuestion]givenAnswer
}

type givenQuestion struct {
	name      string
	queryType uint16
}

// givenAnswer is the answer to queries of one name and type.
type givenAnswer struct {
	rdata *string       // record data in hexadecimal; if nil and without fault, the next plugin answers
	fault string        // faultServfail or faultSilence instead of an answer; else empty
	delay time.Duration // delay of each answer
}

const faultServfail, faultSilence = "servfail", "silence"

// recordTTL is the TTL of the records, seconds.
const recordTTL = 300

// mostAnswerDelay is the largest delay; no client waits as long.
const mostAnswerDelay = time.Minute

// to returns the answer that is set for a query; ok is false if there is none.
func (g *givenAnswers) to(r *dns.Msg) (answer givenAnswer, ok bool) {
	if len(r.Question) != 1 {
		return givenAnswer{}, false
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	answer, ok = g.byQuestion[givenQuestion{dns.CanonicalName(r.Question[0].Name), r.Question[0].Qtype}]
	return answer, ok
}

// wait waits for the delay. It returns false if the query ends first.
func (a givenAnswer) wait(ctx context.Context) bool {
	if a.delay == 0 {
		return true
	}
	select {
	case <-time.After(a.delay):
		return true
	case <-ctx.Done():
		return false
	}
}

// message returns the reply to query; nil if the next plugin answers it.
func (a givenAnswer) message(query *dns.Msg) *dns.Msg {
	if a.rdata == nil && a.fault == "" {
		return nil
	}
	m := new(dns.Msg).SetReply(query)
	m.Authoritative = true
	if a.fault == faultServfail {
		m.Rcode = dns.RcodeServerFailure
		return m
	}
	q := query.Question[0]
	header := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: q.Qclass, Ttl: recordTTL}
	m.Answer = []dns.RR{&dns.RFC3597{Hdr: header, Rdata: *a.rdata}}
	return m
}

// setAnswer executes the command answer.
func (s *server) setAnswer(object []byte) any {
	var command struct {
		Name  string  `json:"name"`
		Type  string  `json:"type"`
		Rdata *string `json:"rdata"`
		Fault string  `json:"fault"`
		Delay int64   `json:"delay_ms"`
	}
	if err := json.Unmarshal(object, &command); err != nil {
		return control.Refusal(err)
	}
	if _, ok := dns.IsDomainName(command.Name); !ok || command.Name == "" {
		return control.Refusal(fmt.Errorf("%q is no domain name", command.Name))
	}
	queryType, ok := dns.StringToType[command.Type]
	if !ok {
		return control.Refusal(fmt.Errorf("%q is no type of a record", command.Type))
	}
	if command.Delay < 0 || command.Delay > mostAnswerDelay.Milliseconds() {
		return control.Refusal(fmt.Errorf("delay_ms is 0 to %d, not %d", mostAnswerDelay.Milliseconds(), command.Delay))
	}
	answer := givenAnswer{fault: command.Fault, delay: time.Duration(command.Delay) * time.Millisecond}
	switch {
	case command.Rdata != nil && command.Fault != "":
		return control.Refusal(fmt.Errorf("either rdata or fault"))
	case command.Rdata != nil:
		if wire, err := hex.DecodeString(*command.Rdata); err != nil || len(wire) > dns.MaxMsgSize/2 {
			return control.Refusal(fmt.Errorf("rdata is hexadecimal and no more than %d bytes: %v", dns.MaxMsgSize/2, err))
		}
		answer.rdata = command.Rdata
	case command.Fault != "" && command.Fault != faultServfail && command.Fault != faultSilence:
		return control.Refusal(fmt.Errorf("unknown fault %q", command.Fault))
	}
	answers, question := &s.common.answers, givenQuestion{dns.CanonicalName(command.Name), queryType}
	answers.mu.Lock()
	defer answers.mu.Unlock()
	if answer == (givenAnswer{}) {
		delete(answers.byQuestion, question)
		return control.OK
	}
	if answers.byQuestion == nil {
		answers.byQuestion = map[givenQuestion]givenAnswer{}
	}
	answers.byQuestion[question] = answer
	return control.OK
}
