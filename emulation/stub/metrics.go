package main

import (
	"encoding/json"
	"io"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// row is what is told of one query; times of phases are null where the query did not get that far.
type row struct {
	Time              int64    `json:"time"`            // arrival, Unix time in nanoseconds
	Client            string   `json:"client"`          // address and port
	ClientProtocol    string   `json:"client_protocol"` // udp or tcp
	Name              string   `json:"name"`            // with its final dot; empty where the query could not be read
	Type              string   `json:"type"`
	Protocol          protocol `json:"protocol"`
	Connection        uint64   `json:"connection"`
	NewConnection     bool     `json:"new_connection"`
	LocalPort         uint16   `json:"local_port"`
	HandshakeMs       float64  `json:"handshake_ms"`
	QueryMs           float64  `json:"query_ms"`
	TotalMs           float64  `json:"total_ms"`
	Resumed           *bool    `json:"resumed"`
	EarlyData         bool     `json:"early_data"`
	EarlyDataAccepted *bool    `json:"early_data_accepted"`
	Rcode             string   `json:"rcode"` // of the answer to the client; empty where there is none
	QueryBytes        int      `json:"query_bytes"`
	AnswerBytes       int      `json:"answer_bytes"`
	Retries           int      `json:"retries"`
	TCPFallback       bool     `json:"tcp_fallback"`
	Error             string   `json:"error"`
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// metrics writes rows, each as one line with one system call, and counts them.
type metrics struct {
	queries  atomic.Uint64
	failures atomic.Uint64

	mu     sync.Mutex
	out    io.Writer // nil where nobody wants them
	failed bool
}

// openMetrics appends to a file; "-" is standard output, and nothing is nowhere.
func openMetrics(path string) (*metrics, error) {
	switch path {
	case "":
		return new(metrics), nil
	case "-":
		return &metrics{out: os.Stdout}, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &metrics{out: file}, nil
}

func (m *metrics) write(r row) {
	m.queries.Add(1)
	if r.Error != "" {
		m.failures.Add(1)
	}
	if m.out == nil {
		return
	}
	line, err := json.Marshal(r)
	if err != nil {
		log.Printf("a row of metrics cannot be written: %v", err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.out.Write(append(line, '\n')); err != nil && !m.failed {
		m.failed = true // said once: a full disk would fill the log as well
		log.Printf("metrics are lost: %v", err)
	}
}
