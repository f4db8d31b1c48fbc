package early

import (
	"net"
	"sync"

	"github.com/coredns/caddy"
)

// reload is what a CoreDNS instance that is being reloaded has for its successor. There is one reload at a time.
var reload struct {
	sync.Mutex
	packets map[string]*Listener
	streams map[string]*net.TCPListener
	tickets *TicketKeys
	undo    []func() // ends what the successor has begun
}

// Reloadable is a plugin's listeners.
type Reloadable interface {
	// Offered are those that are open.
	Offered() ([]*Listener, []*net.TCPListener)
	// Resume is called where the reload failed: the listeners are back.
	Resume() error
}

// OnReload makes c's instance hand over its sockets when it is reloaded, and its ticket keys.
func OnReload(c *caddy.Controller, r Reloadable) {
	keys := TicketKeysOf(c)
	c.OnRestart(func() error {
		reload.Lock()
		defer reload.Unlock()
		if reload.packets == nil {
			reload.packets, reload.streams = map[string]*Listener{}, map[string]*net.TCPListener{}
		}
		reload.tickets = keys
		packets, streams := r.Offered()
		for _, l := range packets {
			reload.packets[l.key] = l
		}
		for _, l := range streams {
			reload.streams[l.Addr().String()] = l
		}
		return nil
	})
	c.OnRestartFailed(func() error {
		for _, undo := range withdraw() {
			undo()
		}
		packets, _ := r.Offered()
		for _, l := range packets {
			if err := l.resume(); err != nil {
				return err
			}
		}
		return r.Resume()
	})
	c.OnShutdown(func() error {
		withdraw()
		return nil
	})
}

// withdraw ends a reload.
func withdraw() []func() {
	reload.Lock()
	defer reload.Unlock()
	undo := reload.undo
	reload.packets, reload.streams, reload.tickets, reload.undo = nil, nil, nil, nil
	return undo
}

// IfReloadFails has undo called where this instance was to succeed another and did not.
func IfReloadFails(undo func()) {
	reload.Lock()
	defer reload.Unlock()
	if reload.packets != nil {
		reload.undo = append(reload.undo, undo)
	}
}

// ListenTCP listens on an address, or on the socket of the instance that this one succeeds.
func ListenTCP(address string) (*net.TCPListener, error) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	reload.Lock()
	predecessor := reload.streams[listenAddress(resolved)]
	reload.Unlock()
	if predecessor == nil {
		return net.ListenTCP("tcp", resolved)
	}
	file, err := predecessor.File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	listener, err := net.FileListener(file)
	if err != nil {
		return nil, err
	}
	return listener.(*net.TCPListener), nil
}

// listenAddress is how a listener on that address names it.
func listenAddress(address *net.TCPAddr) string {
	if address.IP == nil {
		return (&net.TCPAddr{IP: net.IPv6unspecified, Port: address.Port}).String()
	}
	return address.String()
}

// socketFor is a UDP socket, or the one of the listener that this one succeeds, which then serves no more.
func socketFor(key, address string) (net.PacketConn, error) {
	reload.Lock()
	predecessor := reload.packets[key]
	reload.Unlock()
	if predecessor == nil {
		return net.ListenPacket("udp", address)
	}
	predecessor.suspend()
	file, err := predecessor.socket.(*net.UDPConn).File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return net.FilePacketConn(file)
}
