"""Certificates of one run: a CA and one P-256 leaf with every name and address of the server.

They are useful only in this run: its private folder contains the keys, and only its programs trust the CA.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=30)
_CLOCK_SKEW = timedelta(hours=1)
_FILLER = x509.ObjectIdentifier("1.3.6.1.4.1.32473.1")
"""OID of the extension that enlarges a certificate. It is in the arc reserved for documentation (RFC 5612)."""
_MESSAGE_BYTES = 13
"""Size in bytes of a Certificate message without its one certificate: header 4, context 1, lengths 6, extensions 2."""
_TRIES = 200
"""Maximum number of attempts to sign a certificate of an exact size.

ECDSA signatures have 70 to 72 bytes, so each attempt succeeds with a probability of at least one in four.
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificate files of one run, PEM, mode 0600."""

    ca_file: Path
    """Certificate of the run's CA, which clients verify against."""
    certificate_file: Path
    """The server's leaf certificate, without the CA."""
    key_file: Path
    """Private key of the leaf."""
    spki: str
    """Base64 SHA-256 of the leaf's SubjectPublicKeyInfo, for Chromium's `--ignore-certificate-errors-spki-list`."""
    _leaf: x509.CertificateBuilder = field(repr=False)
    _ca_key: ec.EllipticCurvePrivateKey = field(repr=False)

    def issue(self, message_bytes: int = 0) -> None:
        """Write a new leaf certificate for the same key and names.

        Parameters
        ----------
        message_bytes
            Exact size of the TLS 1.3 Certificate message (RFC 8446, section 4.4.2), reached by a filler extension; 0
            for a leaf without the extension.

        Raises
        ------
        ValueError
            If the size is too small for the names.
        """
        _write(self.certificate_file, self._sized(message_bytes).public_bytes(Encoding.PEM))

    def _sized(self, message_bytes: int) -> x509.Certificate:
        leaf = self._leaf.sign(self._ca_key, hashes.SHA256())
        if not message_bytes:
            return leaf
        filler = message_bytes - _message_bytes(leaf)
        for _ in range(_TRIES):
            if filler < 0:
                break
            # Random bytes, like keys and signatures, so that they cannot be compressed.
            value = x509.UnrecognizedExtension(_FILLER, os.urandom(filler))
            leaf = self._leaf.add_extension(value, critical=False).sign(self._ca_key, hashes.SHA256())
            distance = message_bytes - _message_bytes(leaf)
            if not distance:
                return leaf
            filler += distance
        raise ValueError(f"a Certificate message of {message_bytes} bytes cannot be had for so many names")


class Authority:
    """A CA with a P-256 key, which signs leaf certificates."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "crosslayer CA of one run")])
        self.certificate = (
            _builder(self.name, self.name, self.key.public_key(), self.key.public_key(), datetime.now(UTC))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(key_cert_sign=True), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    def pem(self) -> bytes:
        """Certificate of the CA, PEM."""
        return self.certificate.public_bytes(Encoding.PEM)


def make_certificates(
    folder: Path,
    names: Iterable[str],
    addresses: Iterable[str],
    *,
    message_bytes: int = 0,
    authority: Authority | None = None,
    age: timedelta = timedelta(0),
) -> Certificates:
    """Create a leaf certificate for names and addresses, in an existing private folder.

    The keys of leaf and CA are P-256: signing is cheap, and the leaf fits into the server's first QUIC flight.
    `message_bytes` enlarges the leaf, see `Certificates.issue`. `authority` is the CA, by default a new one. The
    leaf's date of issue is `age` before now. The leaf expires 30 days after that date.
    """
    authority = authority or Authority()
    now = datetime.now(UTC) - age
    leaf_key = ec.generate_private_key(ec.SECP256R1())
    subjects: list[x509.GeneralName] = [x509.DNSName(name) for name in dict.fromkeys(names)]
    subjects += [x509.IPAddress(ipaddress.ip_address(address)) for address in dict.fromkeys(addresses)]
    leaf_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "crosslayer server")])
    leaf = (
        _builder(leaf_name, authority.name, leaf_key.public_key(), authority.key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
    )
    ca_file, certificate_file, key_file = (folder / name for name in ("ca.pem", "server.pem", "server.key"))
    certificates = Certificates(
        ca_file, certificate_file, key_file, _spki_hash(leaf_key.public_key()), _leaf=leaf, _ca_key=authority.key
    )
    _write(certificates.ca_file, authority.pem())
    _write(certificates.key_file, leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    certificates.issue(message_bytes)
    return certificates


def _spki_hash(key: ec.EllipticCurvePublicKey) -> str:
    """Base64 SHA-256 of a key's SubjectPublicKeyInfo (RFC 7469, section 2.4)."""
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(info).digest()).decode()


def _message_bytes(leaf: x509.Certificate) -> int:
    return len(leaf.public_bytes(Encoding.DER)) + _MESSAGE_BYTES


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    now: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _key_usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)  # restrict access before the content is written
    path.write_bytes(content)
