"""The guest's kernel and the record of its build."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

from crosslayer import resources
from crosslayer.guest.errors import GuestError


@dataclass(frozen=True, slots=True)
class Kernel:
    """A built kernel, as described by the JSON file next to it."""

    path: Path
    version: str
    config_sha256: str
    """SHA-256 of the kernel's sorted configuration lines."""
    source: str
    """Package and version of the source code."""
    source_sha256: str
    """SHA-256 of that package."""
    patch_sha256: str
    """SHA-256 of crosslayer's patch of the kernel.

    Empty if the patch does not fit this kernel, which was then built without it.
    """
    clock_read_ns: int
    """Virtual time that one read of the clock takes, ns."""

    def as_versions(self) -> dict[str, str]:
        """The kernel's entries among the versions in `campaign.json`.

        The kernel is recorded because it contains the network stack under test.
        """
        return {
            "guest_kernel": self.version,
            "guest_kernel_config_sha256": self.config_sha256,
            "guest_kernel_source": self.source,
            "guest_kernel_source_sha256": self.source_sha256,
            "guest_kernel_patch_sha256": self.patch_sha256,
            "guest_kernel_clock_read_ns": str(self.clock_read_ns),
        }


def find_kernel() -> Kernel:
    """The guest's kernel: the file that CROSSLAYER_KERNEL names, otherwise the one that `make guest` built.

    Raises
    ------
    GuestError
        If there is no kernel, or no valid build record next to it.
    """
    try:
        path = resources.locate("kernel").path
    except resources.ResourceError as error:
        raise GuestError(
            f"there is no kernel for the guest: {error.what}", where=error.where, next_step=error.next_step
        ) from None
    record = path.with_name(f"{path.name}.json")
    try:
        values = json.loads(record.read_text(encoding="utf-8"))
        return Kernel(path, **{field.name: values[field.name] for field in fields(Kernel) if field.name != "path"})
    except (OSError, ValueError, KeyError) as error:
        raise GuestError(
            f"no valid record of how the guest's kernel was built ({error})",
            where=str(record),
            next_step="Run `make guest` to build it again.",
        ) from None
