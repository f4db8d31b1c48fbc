"""The testbed's second web and DNS server, based on aioquic: DoUDP, DoQ, DoH3 and pages over HTTP/3.

It is a program: `python -m crosslayer.testbed.aioquic_server CONFIGURATION`. All its addresses and ports share session
tickets and address-validation tokens, as in the first server, which uses quic-go. Its control commands and its events
have the format of the first server's. `crosslayer.testbed.second_server` starts the program.
"""
