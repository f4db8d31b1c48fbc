"""The certificates of a run: what they name, who may read them, what verifies them."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from crosslayer.testbed.certificates import Certificates, make_certificates

NAMES = ["www.example.org", "alias-1.example.org", "localhost", "www.example.org"]
ADDRESSES = ["10.53.0.2", "10.53.1.1", "10.53.1.1"]


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path, NAMES, ADDRESSES)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_leaf_names_every_host_and_address_once(certificates: Certificates) -> None:
    names = load(certificates.certificate_file).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["www.example.org", "alias-1.example.org", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(a) for a in ("10.53.0.2", "10.53.1.1")]


def test_leaf_verifies_under_the_ca_for_its_names_only(certificates: Certificates) -> None:
    leaf, ca = load(certificates.certificate_file), load(certificates.ca_file)
    policy = PolicyBuilder().store(Store([ca])).time(datetime.now(UTC))
    policy.build_server_verifier(x509.DNSName("alias-1.example.org")).verify(leaf, [])
    policy.build_server_verifier(x509.IPAddress(ipaddress.ip_address("10.53.1.1"))).verify(leaf, [])
    with pytest.raises(VerificationError):
        policy.build_server_verifier(x509.DNSName("www.example.net")).verify(leaf, [])


def test_key_is_p256_and_belongs_to_the_leaf(certificates: Certificates) -> None:
    key = load_pem_private_key(certificates.key_file.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert key.public_key() == load(certificates.certificate_file).public_key()


def test_spki_is_the_hash_chromium_takes(certificates: Certificates) -> None:
    key = load(certificates.certificate_file).public_key()
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert certificates.spki == base64.b64encode(hashlib.sha256(der).digest()).decode()


def test_files_are_private(certificates: Certificates) -> None:
    for path in (certificates.ca_file, certificates.certificate_file, certificates.key_file):
        assert path.stat().st_mode & 0o777 == 0o600, path


def test_two_runs_share_nothing(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert make_certificates(tmp_path, NAMES, ADDRESSES).spki != make_certificates(tmp_path / "other", NAMES, []).spki


@pytest.mark.parametrize("size", [736, 1248, 4500, 14724, 22000])
def test_a_certificate_message_has_the_size_asked_for(tmp_path: Path, size: int) -> None:
    certificates = make_certificates(tmp_path, NAMES, ADDRESSES, message_bytes=size)
    leaf = load(certificates.certificate_file)
    der = leaf.public_bytes(Encoding.DER)
    entry = len(der).to_bytes(3, "big") + der + bytes(2)  # RFC 8446, section 4.4.2, without extensions
    message = b"\x0b" + (len(entry) + 4).to_bytes(3, "big") + b"\0" + len(entry).to_bytes(3, "big") + entry
    assert len(message) == size
    policy = PolicyBuilder().store(Store([load(certificates.ca_file)])).time(datetime.now(UTC))
    policy.build_server_verifier(x509.DNSName("www.example.org")).verify(leaf, [])


def test_a_certificate_issued_anew_is_for_the_same_key_and_names(certificates: Certificates) -> None:
    before = load(certificates.certificate_file)
    certificates.issue(5000)
    after = load(certificates.certificate_file)
    assert after.public_key() == before.public_key()
    san = x509.SubjectAlternativeName
    assert after.extensions.get_extension_for_class(san) == before.extensions.get_extension_for_class(san)
    certificates.issue()
    assert len(load(certificates.certificate_file).public_bytes(Encoding.DER)) < 600


def test_a_certificate_cannot_be_smaller_than_its_names(certificates: Certificates) -> None:
    with pytest.raises(ValueError, match="400 bytes cannot be had"):
        certificates.issue(400)
