"""The certificates of one run: a CA made for it and one P-256 leaf for every name and address of the server.

Nothing here outlives the run: the keys lie in its private folder, and nobody else is asked to trust the CA.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=30)
_CLOCK_SKEW = timedelta(hours=1)
_NAME_BYTES = len("site-0000.shared.example") + 2


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of one run, PEM, mode 0600."""

    ca_file: Path
    """Certificate of the run's CA: what clients verify against."""
    certificate_file: Path
    """The server's leaf certificate, without the CA."""
    key_file: Path
    """Private key of the leaf."""
    spki: str
    """Base64 SHA-256 of the leaf's SubjectPublicKeyInfo, for Chromium's `--ignore-certificate-errors-spki-list`."""


def make_certificates(
    folder: Path, names: Iterable[str], addresses: Iterable[str], *, at_least_bytes: int = 0
) -> Certificates:
    """Make a CA and a leaf certificate for names and addresses, signed by it, in an existing private folder.

    Both keys are P-256: signing is cheap, and the leaf fits into a first QUIC flight unless it is told not to: up to
    `at_least_bytes` (DER), names nobody asks for are added, as in a certificate that many sites share.
    """
    now = datetime.now(UTC)
    ca_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "crosslayer CA of one run")])
    ca = (
        _builder(ca_name, ca_name, ca_key.public_key(), ca_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    subjects: list[x509.GeneralName] = [x509.DNSName(name) for name in dict.fromkeys(names)]
    subjects += [x509.IPAddress(ipaddress.ip_address(address)) for address in dict.fromkeys(addresses)]
    subjects += _more_names(at_least_bytes)
    leaf_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "crosslayer server")])
    leaf = (
        _builder(leaf_name, ca_name, leaf_key.public_key(), ca_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    certificates = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key", spki_hash(leaf))
    _write(certificates.ca_file, ca.public_bytes(Encoding.PEM))
    _write(certificates.certificate_file, leaf.public_bytes(Encoding.PEM))
    _write(certificates.key_file, leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificates


def spki_hash(certificate: x509.Certificate) -> str:
    """Base64 SHA-256 of a certificate's SubjectPublicKeyInfo (RFC 7469, section 2.4)."""
    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(info).digest()).decode()


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


def _more_names(size: int) -> list[x509.GeneralName]:
    """Names that take as many bytes together, type and length of each included."""
    names = [f"site-{number:04}.shared.example" for number in range(-(-size // _NAME_BYTES))]
    return [x509.DNSName(name) for name in names]


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
    path.touch(mode=0o600)  # before there is anything to read
    path.write_bytes(content)
