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


def test_a_leaf_may_be_made_as_large_as_a_shared_one(tmp_path: Path) -> None:
    large = load(make_certificates(tmp_path, NAMES, ADDRESSES, at_least_bytes=4500).certificate_file)
    assert 4500 <= len(large.public_bytes(Encoding.DER)) < 5500
    names = large.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName)[:3] == ["www.example.org", "alias-1.example.org", "localhost"]
