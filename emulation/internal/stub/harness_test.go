package stub

import (
	"bufio"
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"crosslayer.example/emulation/internal/control"

	"github.com/miekg/dns"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const serverName = "dns.test"

// credentials are a CA and a certificate for the upstreams of a test.
type credentials struct {
	ca          string // PEM file
	certificate string // PEM file, of the upstreams
	config      *tls.Config
}

func newCredentials(t *testing.T) credentials {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return credentialsOf(t, key, false)
}

// credentialsOf returns credentials with this key in the upstreams' certificate. With isCA it is a CA certificate.
func credentialsOf(t *testing.T, key crypto.Signer, isCA bool) credentials {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stub test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: serverName}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		IsCA: isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		DNSNames: []string{serverName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	folder := t.TempDir()
	issue := func(name string, template *x509.Certificate, public crypto.PublicKey) (string, []byte) {
		der, err := x509.CreateCertificate(rand.Reader, template, ca, public, caKey)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file, der
	}
	caFile, _ := issue("ca.pem", ca, caKey.Public())
	file, der := issue("certificate.pem", leaf, key.Public())
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	config.SetSessionTicketKeys([][32]byte{{1}}) // tickets stay valid after a restart
	return credentials{caFile, file, config}
}

// server is an upstream on one transport. Its functions determine its behaviour.
type server struct {
	t        *testing.T
	scheme   string
	config   *tls.Config
	address  string // complete after start
	accepted atomic.Int32
	early    atomic.Int32 // queries that arrived before the end of the handshake
	noEarly  bool         // refuses early data

	// answer returns the answer in wire format; nil for no answer.
	answer func(query []byte) []byte
	// hangUp reports whether to close the connection instead of answering; nil for never.
	hangUp func() bool
	// respond replaces answer over HTTP, if not nil.
	respond http.HandlerFunc
	// stream replaces answer on streams of DoQ, if not nil.
	stream func(*quic.Conn, *quic.Stream)

	stop func()

	mu   sync.Mutex
	open map[any]func() // closes each open connection
}

// opened registers a connection for disconnect.
func (s *server) opened(conn any, hangUp func()) {
	s.accepted.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[any]func(){}
	}
	s.open[conn] = hangUp
}

// disconnect closes every connection.
func (s *server) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, hangUp := range s.open {
		hangUp()
	}
	s.open = nil
}

var everyScheme = []string{"udp", "tcp", "tls", "https", "h3", "quic"}

// newServer returns an upstream that answers correctly. start starts it.
func newServer(t *testing.T, scheme string, c credentials) *server {
	s := &server{t: t, scheme: scheme, config: c.config.Clone(), address: "127.0.0.1:0"}
	s.answer = func(query []byte) []byte { return pack(t, answerTo(t, query)) }
	return s
}

// answerTo returns the correct answer: 20 TXT records of 200 bytes for a TXT query, else the address 192.0.2.1.
func answerTo(t *testing.T, query []byte) *dns.Msg {
	m := new(dns.Msg)
	if err := m.Unpack(query); err != nil {
		t.Errorf("the upstream got a malformed query: %v", err)
	}
	answer := new(dns.Msg).SetReply(m)
	header := dns.RR_Header{Name: m.Question[0].Name, Rrtype: m.Question[0].Qtype, Class: dns.ClassINET, Ttl: 300}
	if m.Question[0].Qtype == dns.TypeTXT {
		for range 20 {
			answer.Answer = append(answer.Answer, &dns.TXT{Hdr: header, Txt: []string{strings.Repeat("x", 200)}})
		}
	} else {
		answer.Answer = []dns.RR{&dns.A{Hdr: header, A: net.IPv4(192, 0, 2, 1)}}
	}
	if opt := m.IsEdns0(); opt != nil {
		answer.SetEdns0(udpPayloadBytes, opt.Do())
	}
	return answer
}

func pack(t *testing.T, m *dns.Msg) []byte {
	wire, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return wire
}

// start starts the server. After stop, it starts again on the same port.
func (s *server) start() *server {
	s.t.Helper()
	var err error
	switch s.scheme {
	case "udp":
		err = s.startUDP()
	case "tcp", "tls":
		err = s.startTCP()
	case "https":
		err = s.startHTTPS()
	default:
		err = s.startQUIC()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { s.stop() })
	return s
}

func (s *server) url() string { return s.scheme + "://" + s.address }

// startUDP serves UDP, and TCP on the same port for truncated answers.
func (s *server) startUDP() error {
	var listener net.Listener
	var packets net.PacketConn
	var err error
	for range portTries {
		if listener, err = net.Listen("tcp", s.address); err != nil {
			return err
		}
		if packets, err = net.ListenPacket("udp", listener.Addr().String()); err == nil {
			break
		}
		listener.Close()
	}
	if err != nil {
		return err
	}
	s.address = listener.Addr().String()
	s.serveTCP(listener)
	closeTCP := s.stop
	s.stop = func() { packets.Close(); closeTCP() }
	go func() {
		buffer := make([]byte, maxMessageBytes)
		for {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer := s.answer(bytes.Clone(buffer[:n])); answer != nil {
				if len(answer) > udpPayloadBytes { // truncated within a record, as by some servers
					answer = answer[:udpPayloadBytes]
					answer[2] |= 0x02
				}
				_, _ = packets.WriteTo(answer, from)
			}
		}
	}()
	return nil
}

func (s *server) startTCP() error {
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	s.address = listener.Addr().String()
	if s.scheme == "tls" {
		listener = tls.NewListener(listener, s.config)
	}
	s.serveTCP(listener)
	return nil
}

func (s *server) serveTCP(listener net.Listener) {
	s.stop = func() { listener.Close(); s.disconnect() }
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.opened(conn, func() { conn.Close() })
			go func() {
				defer conn.Close()
				for {
					query, err := readMessage(conn)
					if err != nil {
						return
					}
					if s.hangUp != nil && s.hangUp() {
						return
					}
					go func() {
						if answer := s.answer(query); answer != nil {
							_, _ = conn.Write(framed(answer))
						}
					}()
				}
			}()
		}
	}()
}

type connKey struct{}

func (s *server) startHTTPS() error {
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	s.address = listener.Addr().String()
	web := &http.Server{
		Handler:   http.HandlerFunc(s.serveHTTP),
		TLSConfig: s.config.Clone(),
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.opened(conn, func() { conn.Close() })
			}
		},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, func() { conn.Close() })
		},
		ErrorLog: quiet,
	}
	s.stop = func() { listener.Close(); web.Close() }
	go func() { _ = web.ServeTLS(listener, "", "") }()
	return nil
}

func (s *server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if s.respond != nil {
		s.respond(w, r)
		return
	}
	if r.TLS != nil && !r.TLS.HandshakeComplete {
		s.early.Add(1)
	}
	query := queryOf(s.t, r)
	hangUp, _ := r.Context().Value(connKey{}).(func())
	if s.hangUp != nil && s.hangUp() {
		hangUp()
		return
	}
	answer := s.answer(query)
	if answer == nil {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", dnsMessage)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = w.Write(answer)
}

// queryOf reads the query of a request and verifies that the request conforms to RFC 8484.
func queryOf(t *testing.T, r *http.Request) []byte {
	wire, err := base64Raw(r.URL.Query().Get("dns"))
	if err != nil || r.Method != http.MethodGet || r.URL.Path != "/dns-query" || r.Header.Get("Accept") != dnsMessage ||
		!strings.HasPrefix(r.Host, serverName) {
		t.Errorf("bad request: %s %s%s %v", r.Method, r.Host, r.URL, r.Header)
	}
	return wire
}

func (s *server) startQUIC() error {
	address, err := net.ResolveUDPAddr("udp", s.address)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", address)
	if err != nil {
		return err
	}
	s.address = socket.LocalAddr().String()
	transport := &quic.Transport{Conn: socket}
	config := s.config.Clone()
	config.NextProtos = []string{"doq"}
	if s.scheme == "h3" {
		config.NextProtos = []string{http3.NextProtoH3}
	}
	listener, err := transport.ListenEarly(config, &quic.Config{Allow0RTT: !s.noEarly})
	if err != nil {
		return err
	}
	s.stop = func() { _ = transport.Close(); socket.Close() }
	web := &http3.Server{
		Handler: http.HandlerFunc(s.serveHTTP),
		ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, func() { _ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "") })
		},
	}
	go func() {
		for {
			conn, err := listener.Accept(context.Background())
			if err != nil {
				return
			}
			s.opened(conn, func() { _ = conn.CloseWithError(0, "") })
			if s.scheme == "h3" {
				go func() { _ = web.ServeQUICConn(conn) }()
				continue
			}
			go s.serveDoQ(conn)
		}
	}()
	return nil
}

func (s *server) serveDoQ(conn *quic.Conn) {
	for {
		stream, err := conn.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go func() {
			if s.stream != nil {
				s.stream(conn, stream)
				return
			}
			wire, err := io.ReadAll(stream)
			if err != nil {
				return
			}
			select {
			case <-conn.HandshakeComplete():
			default:
				s.early.Add(1)
			}
			if len(wire) < 2 || int(binary.BigEndian.Uint16(wire)) != len(wire)-2 {
				s.t.Errorf("bad framing: %x", wire)
				return
			}
			if s.hangUp != nil && s.hangUp() {
				_ = conn.CloseWithError(doqNoError, "")
				return
			}
			if answer := s.answer(wire[2:]); answer != nil {
				_, _ = stream.Write(framed(answer))
				_ = stream.Close()
			}
		}()
	}
}

// running is a stub with an open control socket.
type running struct {
	*stub
	t       *testing.T
	metrics string
	path    string // of the control socket
	control net.Conn
	answers *bufio.Reader
}

// startStub starts a stub with these options.
func startStub(t *testing.T, url string, c credentials, options ...string) *running {
	t.Helper()
	folder := t.TempDir()
	metrics := filepath.Join(folder, "metrics")
	arguments := []string{"--upstream", url, "--listen", "127.0.0.1:0", "--metrics", metrics, "--ca", c.ca, "--server-name", serverName}
	s, err := parseSettings(append(arguments, options...), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	st, err := open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.close)
	st.serve()
	path := filepath.Join(folder, "control")
	socket, err := control.Listen(path, "stub")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	go socket.Serve(st.commands())
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &running{stub: st, t: t, metrics: metrics, path: path, control: conn, answers: bufio.NewReader(conn)}
}

// exchange sends a query to the stub over "udp" or "tcp" and returns the answer.
func (r *running) exchange(network string, query *dns.Msg) *dns.Msg {
	r.t.Helper()
	client := &dns.Client{Net: network, Timeout: time.Minute, UDPSize: dns.MaxMsgSize}
	answer, _, err := client.Exchange(query, r.udp.LocalAddr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	return answer
}

// ask sends a query for an A record over UDP. It returns the answer and the query's row.
func (r *running) ask(name string) (*dns.Msg, row) {
	r.t.Helper()
	before := len(r.rows())
	answer := r.exchange("udp", question(name, dns.TypeA))
	rows := r.rows()[before:]
	if len(rows) != 1 {
		r.t.Fatalf("%d rows for one query", len(rows))
	}
	return answer, rows[0]
}

// good is ask for a query that must be answered correctly.
func (r *running) good(name string) row {
	r.t.Helper()
	answer, row := r.ask(name)
	if row.Error != "" || answer.Rcode != dns.RcodeSuccess || len(answer.Answer) != 1 {
		r.t.Fatalf("%s: %+v\n%v", r.settings.url, row, answer)
	}
	return row
}

// bad is ask for a query whose answer must be SERVFAIL, with this error in its row.
func (r *running) bad(name, fault string) row {
	r.t.Helper()
	answer, row := r.ask(name)
	if answer.Rcode != dns.RcodeServerFailure || !strings.Contains(row.Error, fault) || row.Rcode != "SERVFAIL" {
		r.t.Fatalf("%s: error %q, wanted %q\n%v", r.settings.url, row.Error, fault, answer)
	}
	return row
}

func question(name string, kind uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
}

func (r *running) rows() []row {
	r.t.Helper()
	content, err := os.ReadFile(r.metrics)
	if err != nil {
		r.t.Fatal(err)
	}
	var rows []row
	for line := range bytes.Lines(content) {
		var one row
		if err := json.Unmarshal(line, &one); err != nil {
			r.t.Fatalf("%v in %s", err, line)
		}
		rows = append(rows, one)
	}
	return rows
}

// command sends one line to the control socket and reads the answer into result.
func (r *running) command(line string, result any) {
	r.t.Helper()
	if _, err := io.WriteString(r.control, line+"\n"); err != nil {
		r.t.Fatal(err)
	}
	answer, err := r.answers.ReadBytes('\n')
	if err != nil {
		r.t.Fatal(err)
	}
	if err := json.Unmarshal(answer, result); err != nil {
		r.t.Fatal(err)
	}
}

// commandReset runs reset-sessions or forget and verifies the number of closed connections.
func (r *running) commandReset(command string, closed int) {
	r.t.Helper()
	var answer struct {
		OK     bool
		Closed int
	}
	r.command(`{"command": "`+command+`"}`, &answer)
	if !answer.OK || answer.Closed != closed {
		r.t.Fatalf("%s: %+v, wanted %d closed", command, answer, closed)
	}
}

// until waits up to 20 s for a condition that other goroutines fulfil.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// quiet discards the log of servers whose clients misbehave intentionally.
var quiet = log.New(io.Discard, "", 0)

func base64Raw(text string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(text) }

// relay forwards datagrams between clients and a server. It delays datagrams to clients and can drop all datagrams of one
// client port.
type relay struct {
	address string
	drop    atomic.Int32
}

func newRelay(t *testing.T, server string, delay time.Duration) *relay {
	t.Helper()
	target, err := net.ResolveUDPAddr("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { front.Close() })
	r := &relay{address: front.LocalAddr().String()}
	go func() {
		backs := map[uint16]*net.UDPConn{}
		buffer := make([]byte, maxMessageBytes)
		for {
			n, from, err := front.ReadFromUDPAddrPort(buffer)
			if err != nil {
				for _, back := range backs {
					back.Close()
				}
				return
			}
			back := backs[from.Port()]
			if back == nil {
				if back, err = net.DialUDP("udp", nil, target); err != nil {
					t.Error(err)
					return
				}
				backs[from.Port()] = back
				go func() {
					buffer := make([]byte, maxMessageBytes)
					for {
						n, err := back.Read(buffer)
						if err != nil {
							return
						}
						time.Sleep(delay)
						if r.drop.Load() != int32(from.Port()) {
							_, _ = front.WriteToUDPAddrPort(buffer[:n], from)
						}
					}
				}()
			}
			if r.drop.Load() != int32(from.Port()) {
				_, _ = back.Write(buffer[:n])
			}
		}
	}()
	return r
}
