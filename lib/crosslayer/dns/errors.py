"""The exception of this package."""

from __future__ import annotations

from pathlib import Path

from crosslayer.errors import CrosslayerError


class DnsError(CrosslayerError):
    """A failed exchange, or an invalid request for one.

    `what` is short and stable, because it becomes the column `error` of a failed row.
    """


def unreadable_ca(ca_file: Path | None, error: Exception) -> DnsError:
    """Error of a CA file that is missing or has no certificate."""
    reason = getattr(error, "strerror", None) or str(error)
    return DnsError(
        f"the CA cannot be read: {reason}",
        where=str(ca_file),
        next_step="Give the PEM file of the CA that signed the server's certificate.",
    )
