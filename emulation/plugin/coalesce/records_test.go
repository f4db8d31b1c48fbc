package coalesce

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/control"

	"github.com/miekg/dns"
)

// ask sends a query for an HTTPS record over UDP and returns the answer in wire format; nil without an answer.
func ask(t *testing.T, address, name string) []byte {
	t.Helper()
	query, err := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeHTTPS).Pack()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(query); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, dns.MaxMsgSize)
	_ = conn.SetReadDeadline(time.Now().Add(soon))
	n, err := conn.Read(answer)
	if err != nil {
		return nil
	}
	return answer[:n]
}

func TestHTTPSRecordsAreAnsweredAsConfigured(t *testing.T) {
	s := start(t, nil, "")
	udp := s.addresses["dns/udp"]
	execute := func(command string, ok bool) {
		t.Helper()
		var answer control.Reply
		s.command(command, &answer)
		if answer.OK != ok {
			t.Errorf("%s: %+v", command, answer)
		}
	}
	if answer := ask(t, udp, testHost); binary.BigEndian.Uint16(answer[6:]) != 0 { // ANCOUNT
		t.Errorf("a record that nobody gave: %x", answer)
	}
	// A malformed parameter: it announces nine bytes and has fewer.
	execute(`{"command": "answer", "type": "HTTPS", "name": "`+testHost+`", "rdata": "000100000100090268330000"}`, true)
	broken, _ := hex.DecodeString("000100000100090268330000")
	if answer := ask(t, udp, testHost); !bytes.Contains(answer, broken) {
		t.Errorf("answered %x", answer)
	}
	if event := s.lastEvent("query"); event["type"] != "HTTPS" || event["rcode"] != "NOERROR" {
		t.Errorf("event %v", event)
	}
	execute(`{"command": "answer", "type": "HTTPS", "name": "`+testHost+`", "fault": "servfail"}`, true)
	var failed dns.Msg
	if err := failed.Unpack(ask(t, udp, testHost)); err != nil || failed.Rcode != dns.RcodeServerFailure {
		t.Errorf("%v, %v", failed.Rcode, err)
	}
	execute(`{"command": "answer", "type": "HTTPS", "name": "`+testHost+`", "fault": "silence"}`, true)
	if answer := ask(t, udp, testHost); answer != nil {
		t.Errorf("answered %x", answer)
	}
	execute(`{"command": "answer", "type": "HTTPS", "name": "`+testHost+`"}`, true)
	if answer := ask(t, udp, testHost); answer == nil || bytes.Contains(answer, broken) {
		t.Errorf("answered %x", answer)
	}
	for _, bad := range []string{
		`"name": ""`, `"rdata": "00"`, `"name": "a.example", "rdata": "0"`, `"name": "a.example", "fault": "odd"`,
		`"name": "a.example", "fault": "silence", "rdata": ""`, `"name": 1`,
		`"name": "a.example", "delay_ms": -1`, `"name": "a.example", "delay_ms": 60001`,
	} {
		execute(`{"command": "answer", "type": "HTTPS", `+bad+`}`, false)
	}
	for _, bad := range []string{`"type": "ODD", `, `"type": "", `, ``} {
		execute(`{"command": "answer", `+bad+`"name": "a.example", "rdata": "00"}`, false)
	}
}

func TestAnswersOfATypeLeaveOthersAlone(t *testing.T) {
	s := start(t, nil, "")
	udp := s.addresses["dns/udp"]
	give := func(command string) {
		t.Helper()
		var answer control.Reply
		if s.command(command, &answer); !answer.OK {
			t.Fatalf("%s: %+v", command, answer)
		}
	}
	client := dns.Client{Timeout: time.Minute}
	records := func(queryType uint16) []dns.RR {
		t.Helper()
		answer, _, err := client.Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(testHost), queryType), udp)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Answer
	}
	before := records(dns.TypeA)
	give(`{"command": "answer", "name": "` + testHost + `", "type": "AAAA", "rdata": "20010db8005300010000000000000001"}`)
	given := records(dns.TypeAAAA)
	if len(given) != 1 || given[0].(*dns.AAAA).AAAA.String() != "2001:db8:53:1::1" {
		t.Errorf("answered %v", given)
	}
	if after := records(dns.TypeA); len(before) != 1 || len(after) != 1 || after[0].String() != before[0].String() {
		t.Errorf("A was %v, is %v", before, after)
	}
	// The answer of the next plugins, delayed.
	give(`{"command": "answer", "name": "` + testHost + `", "type": "A", "delay_ms": 150}`)
	begin := time.Now()
	if after := records(dns.TypeA); len(after) != 1 || after[0].String() != before[0].String() {
		t.Errorf("A was %v, is %v", before, after)
	}
	if waited := time.Since(begin); waited < 150*time.Millisecond {
		t.Errorf("answered after %v", waited)
	}
	// A record that the command sets is delayed too.
	give(`{"command": "answer", "name": "` + testHost + `", "type": "AAAA", "rdata": "20010db8005300010000000000000002", "delay_ms": 150}`)
	begin = time.Now()
	if given := records(dns.TypeAAAA); len(given) != 1 || time.Since(begin) < 150*time.Millisecond {
		t.Errorf("answered %v after %v", given, time.Since(begin))
	}
}

// echConfig returns an ECHConfig (RFC 9849, section 4) and its private key.
func echConfig(t *testing.T, publicName string) (config, key []byte) {
	t.Helper()
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public := private.PublicKey().Bytes()
	contents := append([]byte{1, 0, 0x20}, binary.BigEndian.AppendUint16(nil, uint16(len(public)))...)
	contents = append(contents, public...)
	contents = append(contents, 0, 4, 0, 1, 0, 1, 0, byte(len(publicName)))
	contents = append(append(contents, publicName...), 0, 0)
	config = append([]byte{0xfe, 0x0d}, binary.BigEndian.AppendUint16(nil, uint16(len(contents)))...)
	return append(config, contents...), private.Bytes()
}

func TestEncryptedHellosAreOpened(t *testing.T) {
	s := start(t, nil, "")
	config, key := echConfig(t, "public.example.org")
	list := append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
	give := fmt.Sprintf(`{"command": "ech", "config": "%x", "key": "%x"}`, config, key)
	var answer control.Reply
	if s.command(give, &answer); !answer.OK {
		t.Fatal(answer)
	}
	offering := func(alpn string) *tls.Config {
		with := s.Client().Config(alpn)
		with.EncryptedClientHelloConfigList = list
		with.MinVersion = tls.VersionTLS13
		return with
	}
	conn, err := tls.Dial("tcp", s.addresses["https/tcp"], offering("h2"))
	if err != nil {
		t.Fatal(err)
	}
	if !conn.ConnectionState().ECHAccepted {
		t.Error("over TCP it was not opened")
	}
	_ = conn.Close()
	client := s.Client()
	client.TLS.EncryptedClientHelloConfigList, client.TLS.MinVersion = list, tls.VersionTLS13
	roundTrip(t, client, s.addresses["h3/udp"], request(t, http.MethodGet, "/"), func() {})
	if event := s.lastEvent("request"); event["ech"] != true {
		t.Errorf("over QUIC: %v", event)
	}
	roundTrip(t, s.Client(), s.addresses["h3/udp"], request(t, http.MethodGet, "/"), func() {})
	if event := s.lastEvent("request"); event["ech"] != false {
		t.Errorf("without one: %v", event)
	}
	// Without the key, the server rejects ECH.
	if s.command(`{"command": "ech"}`, &answer); !answer.OK {
		t.Fatal(answer)
	}
	var rejected *tls.ECHRejectionError
	if _, err := tls.Dial("tcp", s.addresses["https/tcp"], offering("h2")); err == nil || (errors.As(err, &rejected) && len(rejected.RetryConfigList) > 0) {
		t.Errorf("after it was taken back: %v", err)
	}
	_, other := echConfig(t, "public.example.org")
	anothers := fmt.Sprintf(`"config": "%x", "key": "%x"`, config, other)
	private, err := ecdh.X25519().NewPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	bare := fmt.Sprintf(`"config": "%x", "key": "%x"`, private.PublicKey().Bytes(), key)
	cut := fmt.Sprintf(`"config": "%x", "key": "%x"`, config[:len(config)-1], key)
	long := fmt.Sprintf(`"config": "%x%x", "key": "%x"`, config, config, key)
	for _, bad := range []string{anothers, bare, cut, long, `"config": "zz", "key": "00"`, `"config": "00"`, `"key": "00"`, `"config": 1`} {
		if s.command(`{"command": "ech", `+bad+`}`, &answer); answer.OK {
			t.Errorf("%s: %+v", bad, answer)
		}
	}
	// Refused commands do not break the handshakes of clients that offer ECH.
	if _, err := tls.Dial("tcp", s.addresses["https/tcp"], offering("h2")); err == nil || strings.Contains(err.Error(), "internal error") {
		t.Errorf("after bad commands: %v", err)
	}
}
