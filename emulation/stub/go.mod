module crosslayer/emulation/stub

go 1.26.0

require (
	github.com/miekg/dns v1.1.73
	github.com/quic-go/quic-go v0.64.1
	golang.org/x/sys v0.49.0
)

require (
	github.com/quic-go/qpack v0.6.0 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)
