package early

import (
	"net"
	"sync"

	"github.com/coredns/caddy"
)

// reload holds the sockets and ticket keys that the old CoreDNS instance passes to its successor during a reload. There is
// one reload at a time. packets is nil if there is none.
var reload struct {
	sync.Mutex
	packets map[string]*Listener
	streams map[string]*net.TCPListener
	tickets *TicketKeys
	undo    []func() // close what the successor has opened, if the reload fails
}

// Reloadable is implemented by the listeners of a plugin.
type Reloadable interface {
	// Offered returns the open listeners.
	Offered() ([]*Listener, []*net.TCPListener)
	// Resume is called after a failed reload, when the QUIC listeners serve again.
	Resume() error
}

// OnReload registers listeners whose sockets c's instance passes to its successor in a reload, with the ticket keys.
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
		for _, undo := range endReload() {
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
		endReload()
		return nil
	})
}

// endReload clears the state of a reload. It returns the functions that undo the successor's start.
func endReload() []func() {
	reload.Lock()
	defer reload.Unlock()
	undo := reload.undo
	reload.packets, reload.streams, reload.tickets, reload.undo = nil, nil, nil, nil
	return undo
}

// IfReloadFails registers a function that is called if this instance is the successor in a reload and the reload fails.
func IfReloadFails(undo func()) {
	reload.Lock()
	defer reload.Unlock()
	if reload.packets != nil {
		reload.undo = append(reload.undo, undo)
	}
}

// ListenTCP listens on an address. In a reload it duplicates the old instance's socket of that address.
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

// listenAddress returns the address as the Addr method of a listener on it formats it.
func listenAddress(address *net.TCPAddr) string {
	if address.IP == nil {
		return (&net.TCPAddr{IP: net.IPv6unspecified, Port: address.Port}).String()
	}
	return address.String()
}

// socketFor returns a UDP socket for an address. In a reload it suspends the old instance's listener of that key and
// duplicates its socket.
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
