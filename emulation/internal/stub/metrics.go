package stub

import (
	"os"
	"sync/atomic"
	"time"

	"crosslayer.example/emulation/internal/jsonl"
)

// row is the row of metrics of one query. Times of phases that the query did not reach are 0.
type row struct {
	Time              int64    `json:"time"`            // arrival, Unix time in nanoseconds
	Client            string   `json:"client"`          // address and port
	ClientProtocol    string   `json:"client_protocol"` // udp or tcp
	Name              string   `json:"name"`            // with its final dot; empty if the query is malformed
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
	Rcode             string   `json:"rcode"` // of the answer to the client; empty without one
	QueryBytes        int      `json:"query_bytes"`
	AnswerBytes       int      `json:"answer_bytes"`
	Retries           int      `json:"retries"`
	SilenceMs         float64  `json:"silence_ms"` // wait on an idle connection before the query was also sent over a new one; 0: not sent
	TCPFallback       bool     `json:"tcp_fallback"`
	Error             string   `json:"error"`
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// metrics counts rows and writes each as one line.
type metrics struct {
	queries  atomic.Uint64
	failures atomic.Uint64
	lines    *jsonl.Writer // nil: rows are only counted
}

// openMetrics returns metrics that append to a file. "-" is standard output; with an empty path rows are only counted.
func openMetrics(path string) (*metrics, error) {
	switch path {
	case "":
		return new(metrics), nil
	case "-":
		return &metrics{lines: jsonl.New(os.Stdout, logMetricsError)}, nil
	}
	lines, err := jsonl.Open(path, logMetricsError)
	return &metrics{lines: lines}, err
}

func logMetricsError(format string, values ...any) { logger.Printf("metrics: "+format, values...) }

func (m *metrics) write(r row) {
	m.queries.Add(1)
	if r.Error != "" {
		m.failures.Add(1)
	}
	m.lines.Write(r)
}
