"""The second web and DNS server, on aioquic: DoQ, DoH3 and pages over HTTP/3, and DNS over UDP.

It is a program: `python -m crosslayer.testbed.aioquic_server CONFIGURATION`. All its addresses and ports share session
tickets and address-validation tokens, as in the first server, which uses quic-go. Its control socket and its events
have the first server's format. `crosslayer.testbed.second_server` starts it.
"""
