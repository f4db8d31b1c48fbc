"""Compare what is installed with a list of versions, such as setup/pinned.in: `python versions.py FILE`.

Ends with 1 where a package of the list is of another version or missing, and prints what the list should say.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path


def differing(listed: str) -> list[str]:
    """A line for each package of the list that is not installed in its version."""
    lines = []
    for name, version in re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", listed, re.MULTILINE):
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{name}: not installed, listed is {version}")
            continue
        if installed != version:
            lines.append(f"{name}=={installed}    (listed is {version})")
    return lines


def main() -> int:
    """Compare, print what differs, and give the exit status."""
    file = Path(sys.argv[1])
    lines = differing(file.read_text(encoding="utf-8"))
    for line in lines:
        print(line)
    if lines:
        print(f"{file} is not of this environment: change these lines, then run `make lock` (docs/reference/nix.md).")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
