"""A web and DNS server on aioquic, beside the one on quic-go: DoQ, DoH3 and pages over HTTP/3, and DNS over UDP.

It is a program: `python -m crosslayer.testbed.aioquic_server CONFIGURATION`. All its addresses and ports share session
tickets and address-validation tokens, as in the first server. It takes commands on a control socket and writes events
as that does; `crosslayer.testbed.second_server` starts it.
"""
