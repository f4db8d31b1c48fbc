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

// givenAnswers are answers that the control socket gave, by the lower-case name and the type of their query. They stand
// before what the rest of the chain would answer, and their records need not be well-formed.
type givenAnswers struct {
	mu         sync.RWMutex
	byQuestion map[givenQuestion]givenAnswer
}

type givenQuestion struct {
	name      string
	queryType uint16
}

// givenAnswer is the answer to a query.
type givenAnswer struct {
	rdata *string       // hexadecimal; without it and without fault the chain answers
	fault string        // servfail or silence instead of an answer; else empty
	delay time.Duration // time before each answer of that type
}

const faultServfail, faultSilence = "servfail", "silence"

// recordTTL is that of records of a test, seconds.
const recordTTL = 300

// mostAnswerDelay is longer than any client waits.
const mostAnswerDelay = time.Minute

func (g *givenAnswers) to(r *dns.Msg) (answer givenAnswer, ok bool) {
	if len(r.Question) != 1 {
		return givenAnswer{}, false
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	answer, ok = g.byQuestion[givenQuestion{dns.CanonicalName(r.Question[0].Name), r.Question[0].Qtype}]
	return answer, ok
}

// wait delays the answer; false if the query ended meanwhile.
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

// message is the reply to query; nil where the chain replies.
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

// setAnswer takes the command answer.
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
