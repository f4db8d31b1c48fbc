"""Build hook of the wheel: the files that measuring and analysis read travel in it, below `crosslayer/share`.

They are laid out like a checkout (lib/crosslayer/resources.py). The Go programs are not among them, since they differ
from machine to machine: their sources are, and `crosslayer setup` builds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PATTERNS = (
    "data/published/**/*",
    "emulation/boxes/*.toml",
    "emulation/cmd/**/*.go",
    "emulation/cmd/crosslayer-guest/kernel.*",
    "emulation/go.*",
    "emulation/internal/**/*.go",
    "emulation/plugin/**/*.go",
    "emulation/profiles.toml",
    "emulation/traces/*",
    "sites/**/*",
)
LEFT_OUT = ("*_test.go", "*/_make/*", "*/make.py", "*.pyc")
"""Tests, and what makes the files of pages and traces."""


def shared_files(root: Path) -> Iterator[Path]:
    """Every file of a checkout that travels in the wheel, relative to the checkout."""
    for pattern in PATTERNS:
        for path in sorted(root.glob(pattern)):
            if path.is_file() and not any(path.match(left_out) for left_out in LEFT_OUT):
                yield path.relative_to(root)


class SharedFiles(BuildHookInterface[Any]):
    """Adds the shared files to a wheel; an editable installation reads them in its checkout."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by Hatchling before it builds; `version` is `standard` or `editable`."""
        if version == "standard":
            root = Path(self.root)
            build_data["force_include"] |= {str(root / path): f"crosslayer/share/{path}" for path in shared_files(root)}
