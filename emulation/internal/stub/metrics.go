package stub

import (
	"os"
	"sync/atomic"
	"time"

	"crosslayer.example/emulation/internal/jsonl"
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
	SilenceMs         float64  `json:"silence_ms"` // wait for a packet on an idle connection before a new one was opened; 0: no wait
	TCPFallback       bool     `json:"tcp_fallback"`
	Error             string   `json:"error"`
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// metrics counts rows and writes them, each as one line.
type metrics struct {
	queries  atomic.Uint64
	failures atomic.Uint64
	lines    *jsonl.Writer // nil where nobody wants them
}

// openMetrics appends to a file; "-" is standard output, and nothing is nowhere.
func openMetrics(path string) (*metrics, error) {
	switch path {
	case "":
		return new(metrics), nil
	case "-":
		return &metrics{lines: jsonl.New(os.Stdout, complain)}, nil
	}
	lines, err := jsonl.Open(path, complain)
	return &metrics{lines: lines}, err
}

func complain(format string, values ...any) { logger.Printf("metrics: "+format, values...) }

func (m *metrics) write(r row) {
	m.queries.Add(1)
	if r.Error != "" {
		m.failures.Add(1)
	}
	m.lines.Write(r)
}
