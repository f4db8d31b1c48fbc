"""Build hook that adds the files for measurement and analysis to the wheel, in `crosslayer/share`.

The files have the same layout as in a checkout (lib/crosslayer/resources.py). The wheel has the sources of the Go
programs instead of the programs, which differ between machines; `crosslayer setup` builds them.
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
"""Tests, and programs that generate the files of pages and traces."""


def shared_files(root: Path) -> Iterator[Path]:
    """Every file of a checkout that the wheel contains, relative to the checkout."""
    for pattern in PATTERNS:
        for path in sorted(root.glob(pattern)):
            if path.is_file() and not any(path.match(left_out) for left_out in LEFT_OUT):
                yield path.relative_to(root)


class SharedFiles(BuildHookInterface[Any]):
    """Hook that adds the shared files to a wheel. An editable installation reads them from its checkout instead."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files. Hatchling calls this before it builds; `version` is `standard` or `editable`."""
        if version == "standard":
            root = Path(self.root)
            build_data["force_include"] |= {str(root / path): f"crosslayer/share/{path}" for path in shared_files(root)}
