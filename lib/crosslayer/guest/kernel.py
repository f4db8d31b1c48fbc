"""The guest's kernel, and what is known of how it was built."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

from crosslayer import places
from crosslayer.guest.errors import GuestError


@dataclass(frozen=True, slots=True)
class Kernel:
    """A built kernel; what the file beside it says."""

    path: Path
    version: str
    config_sha256: str
    """Hash of its configuration's lines, sorted."""
    source: str
    """Package and version it was built from."""
    source_sha256: str
    """Hash of that package."""
    patch_sha256: str
    """Hash of the patch it was built with; empty where that did not apply."""
    clock_read_ns: int
    """Virtual time that reading the clock takes, ns."""

    def as_versions(self) -> dict[str, str]:
        """What `campaign.json` says of it: the network stack under test is part of the environment."""
        return {
            "guest_kernel": self.version,
            "guest_kernel_config_sha256": self.config_sha256,
            "guest_kernel_source": self.source,
            "guest_kernel_source_sha256": self.source_sha256,
            "guest_kernel_patch_sha256": self.patch_sha256,
            "guest_kernel_clock_read_ns": str(self.clock_read_ns),
        }


def find_kernel() -> Kernel:
    """The guest's kernel: what CROSSLAYER_KERNEL names, else the one that `make guest` built.

    Raises
    ------
    GuestError
        Where there is none, or nothing beside it says what it is.
    """
    try:
        path = places.find("kernel").path
    except places.PlaceError as error:
        raise GuestError(
            f"there is no kernel for the guest: {error.what}", where=error.where, next_step=error.next_step
        ) from None
    about = path.with_name(f"{path.name}.json")
    try:
        known = json.loads(about.read_text(encoding="utf-8"))
        return Kernel(path, **{field.name: known[field.name] for field in fields(Kernel) if field.name != "path"})
    except (OSError, ValueError, KeyError) as error:
        raise GuestError(
            f"nothing says how the guest's kernel was built ({error})",
            where=str(about),
            next_step="`make guest` builds it anew.",
        ) from None
