"""Values of the column `condition` in this study. The column `server_certificate_bytes` has the certificate's size."""

CERTIFICATE = "certificate"
"""The server has a certificate of a set size.

In an exchange, the client has a ticket, or neither ticket nor token. In a visit, the client has both, or neither.
"""
CERTIFICATE_AND_TOKEN = "certificate-token"
"""The client has a token, but no ticket."""
CERTIFICATE_NO_TOKEN = "certificate-no-token"
"""The client has a ticket, but no token."""
SEARCH = "search"
"""One of the exchanges that search for the certificate size above which a handshake takes another round-trip."""
