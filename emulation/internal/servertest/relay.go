package servertest

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go/quicvarint"
)

// Relay forwards UDP datagrams between a QUIC client and the server. It delays the end of the handshake until Release: it
// holds the client's Handshake and 1-RTT packets. An answer of the server before Release is therefore an answer to early data.
//
// The relay forwards nothing to the client before RequestSent, because a client sends no early data after its handshake.
type Relay struct {
	t        *testing.T
	front    *net.UDPConn // towards the client
	back     *net.UDPConn // towards the server
	released chan struct{}
	sent     chan struct{}

	mu     sync.Mutex
	client *net.UDPAddr
	held   [][]byte
	passed [][]byte            // datagrams from the client to the server before the end of the handshake
	seen   map[PacketType]bool // types of packets in either direction
}

// PacketType is the type of a QUIC version 1 packet: the type of its long header, or shortPacket.
type PacketType byte

// Types of packets.
const (
	initialPacket PacketType = iota
	EarlyPacket
	handshakePacket
	RetryPacket
	shortPacket
)

// NewRelay starts a relay to server. With gated false it delays nothing and only records packets.
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

// Address returns the address that clients connect to.
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

// Release forwards the held packets of the client, so that its handshake ends.
func (r *Relay) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.released)
	for _, datagram := range r.held {
		_, _ = r.back.Write(datagram)
	}
}

// RequestSent must be called after the client has passed its request to QUIC. 30 ms later, when the request's packets have
// passed, the relay starts to forward packets to the client.
func (r *Relay) RequestSent() {
	time.AfterFunc(30*time.Millisecond, func() { close(r.sent) })
}

// Replay sends the client's datagrams from before the end of its handshake to the server again, from another port.
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

// Saw reports whether the relay has received a packet of that type.
func (r *Relay) Saw(kind PacketType) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[kind]
}

// packetTypes returns the types of the packets in a datagram. Header protection does not cover them (RFC 9000, section 17).
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
