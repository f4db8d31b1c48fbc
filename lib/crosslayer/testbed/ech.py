"""Keys of Encrypted Client Hello (RFC 9849): the configuration for DNS, and the private key for the server."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

_VERSION = 0xFE0D
_KEM_X25519 = 0x0020
_HKDF_SHA256, _AES_128_GCM = 0x0001, 0x0001


@dataclass(frozen=True, slots=True)
class EchKey:
    """One ECH key of a server."""

    config: bytes
    """ECHConfig (RFC 9849, section 4)."""
    private_key: bytes
    """Private key of the configuration's public key: X25519, 32 bytes."""

    @property
    def config_list(self) -> bytes:
        """ECHConfigList with this configuration: the value of the key `ech` of an HTTPS record (RFC 9848)."""
        return _vector(self.config)

    @classmethod
    def make(cls, public_name: str, number: int = 1) -> EchKey:
        """Generate a new key.

        Parameters
        ----------
        public_name
            The name in the unencrypted hello. The server's certificate must contain it. If a client's key is outdated,
            the server sends a new key, which the client rejects if the certificate lacks this name.
        number
            `config_id`, 0 to 255.
        """
        key = X25519PrivateKey.generate()
        public = _vector(key.public_key().public_bytes_raw())
        suites = _vector(struct.pack("!HH", _HKDF_SHA256, _AES_128_GCM))
        name = public_name.encode("ascii")
        contents = struct.pack("!BH", number, _KEM_X25519) + public + suites + b"\0" + bytes([len(name)]) + name
        contents += _vector(b"")  # extensions
        return cls(struct.pack("!H", _VERSION) + _vector(contents), key.private_bytes_raw())


def _vector(value: bytes) -> bytes:
    return struct.pack("!H", len(value)) + value
