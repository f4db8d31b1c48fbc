"""The policy for certificates of servers, the same for every encrypted transport.

OpenSSL (DoT, DoH) and cryptography (DoQ, DoH3) accept different certificates. OpenSSL accepts a CA as a leaf.
cryptography accepts RSA keys of any size. Which keys OpenSSL accepts depends on the security level of the system. A
certificate that this module refuses fails on all four transports.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.verification import PolicyBuilder, ServerVerifier, Store, VerificationError

from crosslayer.dns.errors import unreadable_ca
from crosslayer.dns.model import Resolver

MIN_RSA_BITS = 2048
"""Size of the smallest RSA key allowed in a chain, bits (NIST SP 800-57, part 1, section 5.6.2)."""


class CertificateVerifier:
    """Checks the certificate chain of one server; `DnsError` if its CA cannot be read.

    The constructor reads the trusted CAs, so that a check takes only 0.08 ms.
    """

    def __init__(self, server: Resolver) -> None:
        assert server.ca_file is not None, "clients of encrypted transports have a CA"
        try:
            store = Store(x509.load_pem_x509_certificates(server.ca_file.read_bytes()))
        except (OSError, ValueError) as error:
            raise unreadable_ca(server.ca_file, error) from None
        try:
            subject: x509.DNSName | x509.IPAddress = x509.IPAddress(ipaddress.ip_address(server.server_name))
        except ValueError:
            subject = x509.DNSName(server.server_name)
        self._verifier: ServerVerifier = PolicyBuilder().store(store).build_server_verifier(subject)

    def verify(self, leaf: x509.Certificate, intermediates: Sequence[x509.Certificate]) -> None:
        """Check that the certificate chain leads to the CA and that its certificates are acceptable.

        The check covers the name, the validity period and the sizes of RSA keys. The leaf must not be a CA.

        Raises
        ------
        cryptography.x509.verification.VerificationError
            For the first check that fails; the message has the reason.
        """
        for certificate in self._verifier.verify(leaf, list(intermediates)):
            key = certificate.public_key()
            if isinstance(key, rsa.RSAPublicKey) and key.key_size < MIN_RSA_BITS:
                raise VerificationError(f"an RSA key of {key.key_size} bits, less than {MIN_RSA_BITS}")
