package coalesce

import (
	"sync"

	"crosslayer.example/emulation/internal/jsonl"
)

// connectionEvent reports a connection after its handshake, over TCP after the server's part of it.
type connectionEvent struct {
	Event      string `json:"event"`
	Time       int64  `json:"time"`
	Listener   string `json:"listener"`
	Remote     string `json:"remote"`
	Local      string `json:"local"`
	ALPN       string `json:"alpn"`
	ServerName string `json:"server_name"`
	Resumed    bool   `json:"resumed"`
	EarlyData  bool   `json:"early_data"`
	// AddressValidated is true if the client's first packet had a valid address-validation token.
	AddressValidated bool   `json:"address_validated"`
	QUICVersion      string `json:"quic_version"`
	TLSVersion       string `json:"tls_version"`
	Error            string `json:"error"`
}

// requestEvent reports an HTTP request. HandshakeComplete refers to its arrival: false means early data.
type requestEvent struct {
	Event             string `json:"event"`
	Time              int64  `json:"time"`
	Done              int64  `json:"done"`
	Listener          string `json:"listener"`
	Remote            string `json:"remote"`
	ServerName        string `json:"server_name"`
	Host              string `json:"host"`
	Method            string `json:"method"`
	Path              string `json:"path"`
	Status            int    `json:"status"`
	Bytes             int    `json:"bytes"`
	HandshakeComplete bool   `json:"handshake_complete"`
	Resumed           bool   `json:"resumed"`
	AddressValidated  bool   `json:"address_validated"`
	// KeyShare is the group of the key exchange. Initials is the number of packets of the ClientHello, 0 over TCP.
	KeyShare string `json:"key_share"`
	Initials int    `json:"initials"`
	// ECH is true if the ClientHello was encrypted and the server decrypted it (RFC 9849).
	ECH bool `json:"ech"`
}

// queryEvent reports a DNS query. It is written before the answer is sent.
type queryEvent struct {
	Event             string `json:"event"`
	Time              int64  `json:"time"`
	Listener          string `json:"listener"`
	Remote            string `json:"remote"`
	Name              string `json:"name"`
	Type              string `json:"type"`
	Rcode             string `json:"rcode"`
	HandshakeComplete bool   `json:"handshake_complete"`
	Resumed           bool   `json:"resumed"`
	AddressValidated  bool   `json:"address_validated"`
	// KeyShare is the group of the key exchange. Initials is the number of packets of the ClientHello, 0 over TCP.
	KeyShare string `json:"key_share"`
	Initials int    `json:"initials"`
}

// tokenEvent reports an address-validation token for a client. It is written before the packet is sent. BehindTicket is true
// if the session ticket was sent before the token: some clients discard a token that arrives without a ticket before it.
type tokenEvent struct {
	Event        string `json:"event"`
	Time         int64  `json:"time"`
	Listener     string `json:"listener"`
	Remote       string `json:"remote"`
	BehindTicket bool   `json:"behind_ticket"`
}

// counted is an event that the command stats counts by kind and listener.
type counted interface {
	counter() (kind, listener string)
}

func (e connectionEvent) counter() (kind, listener string) { return "connections", e.Listener }
func (e requestEvent) counter() (kind, listener string)    { return "requests", e.Listener }
func (e queryEvent) counter() (kind, listener string)      { return "queries", e.Listener }
func (e tokenEvent) counter() (kind, listener string)      { return "tokens", e.Listener }

// eventLog counts events. If a file is open, it writes each event as one line.
type eventLog struct {
	mu     sync.Mutex // covers lines and counts, so that they agree
	lines  *jsonl.Writer
	counts map[string]map[string]int
}

func newEventLog() *eventLog {
	return &eventLog{counts: map[string]map[string]int{"connections": {}, "requests": {}, "queries": {}, "tokens": {}}}
}

func (l *eventLog) open(path string) error {
	lines, err := jsonl.Open(path, func(format string, values ...any) { log.Errorf("Events: "+format, values...) })
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = lines
	return nil
}

func (l *eventLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Close()
}

func (l *eventLog) write(event counted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kind, listener := event.counter()
	l.counts[kind][listener]++
	l.lines.Write(event)
}

// totals returns the number of events by kind and listener.
func (l *eventLog) totals() map[string]map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	totals := make(map[string]map[string]int, len(l.counts))
	for kind, byListener := range l.counts {
		totals[kind] = make(map[string]int, len(byListener))
		for listener, n := range byListener {
			totals[kind][listener] = n
		}
	}
	return totals
}
