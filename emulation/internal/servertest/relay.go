package servertest

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go/quicvarint"
)

// Relay stands between a QUIC client and the server and keeps the client's handshake from ending, until released. What
// the server answers before the release, it answered from early data.
//
// Nothing goes downstream before RequestSent: a client whose handshake has ended sends no more early data.
type Relay struct {
	t        *testing.T
	front    *net.UDPConn // towards the client
	back     *net.UDPConn // towards the server
	released chan struct{}
	sent     chan struct{}

	mu     sync.Mutex
	client *net.UDPAddr
	held   [][]byte
	passed [][]byte            // from the client to the server, before the end of the handshake
	seen   map[PacketType]bool // of packets either way
}

// PacketType is the type of a QUIC packet, version 1: that of the long header, or short.
type PacketType byte

// Types of packets.
const (
	initialPacket PacketType = iota
	EarlyPacket
	handshakePacket
	RetryPacket
	shortPacket
)

// NewRelay starts a relay to server; with gated false it only watches.
func NewRelay(t *testing.T, server string, gated bool) *Relay {
	t.Helper()
	address, err := net.ResolveUDPAddr("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{t: t, released: make(chan struct{}), sent: make(chan struct{}), seen: map[PacketType]bool{}}
	if r.front, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	if r.back, err = net.DialUDP("udp", nil, address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.front.Close(); r.back.Close() })
	if !gated {
		close(r.sent)
		close(r.released)
	}
	go r.upstream()
	go r.downstream()
	return r
}

// Address is where clients find the relay.
func (r *Relay) Address() string { return r.front.LocalAddr().String() }

func (r *Relay) upstream() {
	buffer := make([]byte, 65536)
	for {
		n, from, err := r.front.ReadFromUDP(buffer)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.client = from
		ends := false
		for _, kind := range packetTypes(buffer[:n]) {
			ends = ends || kind == handshakePacket || kind == shortPacket
			r.seen[kind] = true
		}
		select {
		case <-r.released:
			ends = false
		default:
		}
		if ends {
			r.held = append(r.held, append([]byte(nil), buffer[:n]...))
		} else {
			r.passed = append(r.passed, append([]byte(nil), buffer[:n]...))
			_, _ = r.back.Write(buffer[:n])
		}
		r.mu.Unlock()
	}
}

func (r *Relay) downstream() {
	buffer := make([]byte, 65536)
	for {
		n, err := r.back.Read(buffer)
		if err != nil {
			return
		}
		<-r.sent
		r.mu.Lock()
		for _, kind := range packetTypes(buffer[:n]) {
			r.seen[kind] = true
		}
		_, _ = r.front.WriteToUDP(buffer[:n], r.client)
		r.mu.Unlock()
	}
}

// Release lets the client's handshake end.
func (r *Relay) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.released)
	for _, datagram := range r.held {
		_, _ = r.back.Write(datagram)
	}
}

// RequestSent is called once the client has handed its request to QUIC; its packets follow at once.
func (r *Relay) RequestSent() {
	time.AfterFunc(30*time.Millisecond, func() { close(r.sent) })
}

// Replay sends what the client sent before the end of its handshake to the server again, from an address of its own.
func (r *Relay) Replay(t *testing.T) {
	t.Helper()
	again, err := net.DialUDP("udp", nil, r.back.RemoteAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { again.Close() })
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, datagram := range r.passed {
		if _, err := again.Write(datagram); err != nil {
			t.Fatal(err)
		}
	}
}

// Saw tells whether a packet of that type has passed.
func (r *Relay) Saw(kind PacketType) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[kind]
}

// packetTypes reads the types of the packets in a datagram; headers tell them without keys (RFC 9000, section 17).
func packetTypes(datagram []byte) (types []PacketType) {
	for len(datagram) > 0 {
		if datagram[0]&0x80 == 0 {
			return append(types, shortPacket)
		}
		kind := PacketType(datagram[0] >> 4 & 3)
		types = append(types, kind)
		if kind == RetryPacket || len(datagram) < 7 {
			return types
		}
		at := 5
		at += 1 + int(datagram[at]) // destination connection ID
		at += 1 + int(datagram[at]) // source connection ID
		if kind == initialPacket {
			token, n, err := quicvarint.Parse(datagram[at:])
			if err != nil {
				return types
			}
			at += n + int(token)
		}
		length, n, err := quicvarint.Parse(datagram[at:])
		if err != nil || at+n+int(length) > len(datagram) {
			return types
		}
		datagram = datagram[at+n+int(length):]
	}
	return types
}
