package stub

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/miekg/dns"
)

func seedMessages(f *testing.F) (query, answer []byte) {
	f.Helper()
	q := question("www.example.org", dns.TypeA).SetEdns0(udpPayloadBytes, true)
	q.Id = 0
	query, err := q.Pack()
	if err != nil {
		f.Fatal(err)
	}
	a := new(dns.Msg).SetReply(q).SetEdns0(4096, true)
	record, err := dns.NewRR("www.example.org. 300 IN A 192.0.2.1")
	if err != nil {
		f.Fatal(err)
	}
	a.Answer = []dns.RR{record}
	if answer, err = a.Pack(); err != nil {
		f.Fatal(err)
	}
	return query, answer
}

// Every message of an upstream is either a bad answer or can be converted to an answer to the client's question.
func FuzzUpstreamAnswer(f *testing.F) {
	query, answer := seedMessages(f)
	for _, seed := range [][]byte{query, answer, answer[:20], answer[:len(answer)-3], {}, append(bytes.Clone(answer[:12]), 0xc0, 0x0c)} {
		f.Add(seed)
	}
	client := question("WWW.example.org", dns.TypeA).SetEdns0(1232, false)
	f.Fuzz(func(t *testing.T, wire []byte) {
		m, err := checkAnswer(wire, 0, client.Question[0])
		if err != nil {
			if _, bad := err.(badAnswer); !bad {
				t.Fatalf("%x: %v", wire, err)
			}
			return
		}
		if _, err := subtractAge(wire, 10); err != nil {
			if _, bad := err.(badAnswer); bad {
				t.Fatalf("%x: good, and then %v", wire, err)
			}
		}
		_ = checkDoQ(wire)
		reply := clientAnswer(client, m)
		if reply.Id != client.Id || len(reply.Question) != 1 || reply.Question[0] != client.Question[0] || twoOPTs(reply) {
			t.Fatalf("%x: %v", wire, reply)
		}
		reply.Truncate(dns.MinMsgSize)
		reply.Compress = true
		_, _ = reply.Pack() // an error would be answered with SERVFAIL
	})
}

// The content of a DoQ stream is either one message or an error.
func FuzzStreamOfDoQ(f *testing.F) {
	_, answer := seedMessages(f)
	for _, seed := range [][]byte{framed(answer), framed(answer)[:5], append(framed(answer), 0), {0, 0}, {}, {0xff, 0xff}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		wire, _, err := readAnswer(bytes.NewReader(stream))
		_, bad := err.(badAnswer)
		switch {
		case err != nil && !bad && !errors.Is(err, io.EOF):
			t.Fatalf("%x: %v", stream, err)
		case err == nil && (len(stream) < 2 || int(binary.BigEndian.Uint16(stream)) != len(wire) || len(stream) != 2+len(wire)):
			t.Fatalf("%x: %x", stream, wire)
		}
	})
}

// Every query with one question is converted to a valid query for the upstream, or cannot be packed.
func FuzzClientQuery(f *testing.F) {
	query, answer := seedMessages(f)
	for _, seed := range [][]byte{query, answer, query[:12], query[:5], {}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		if len(wire) < headerBytes {
			return
		}
		m, err := parse(wire)
		if err != nil || len(m.Question) != 1 {
			return
		}
		for _, p := range []protocol{doUDP, doQ} {
			packed, err := upstreamQuery(m, p)
			if err != nil {
				continue
			}
			asked := new(dns.Msg)
			if err := asked.Unpack(packed); err != nil || asked.Id != 0 || len(asked.Question) != 1 {
				t.Fatalf("%x: %x, %v", wire, packed, err)
			}
		}
		if _, err := failure(m, dns.RcodeServerFailure, "text").Pack(); err != nil {
			t.Skipf("a name that cannot be packed: %v", err)
		}
	})
}
