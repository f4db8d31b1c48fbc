"""Uninstall all packages that the named ones do not need: `python setup/keep_packages.py crosslayer pycurl`.

The image needs the packages for measurement and analysis, and no development tools (Containerfile).
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(names: list[str]) -> set[str]:
    """Names of the packages and of all their requirements, including those of extras."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        one = waiting.pop()
        key = canonicalize_name(one.name), frozenset(one.extras)
        if key in seen:
            continue
        seen.add(key)
        for required in map(Requirement, importlib.metadata.requires(one.name) or ()):
            environments = [{"extra": extra} for extra in ("", *one.extras)]
            if required.marker is None or any(map(required.marker.evaluate, environments)):
                waiting.append(required)
    return {name for name, _ in seen}


if __name__ == "__main__":
    installed = {canonicalize_name(one.metadata["Name"]) for one in importlib.metadata.distributions()}
    unused = sorted(installed - needed(sys.argv[1:]))
    print(f"== not needed and uninstalled: {' '.join(unused)}")
    subprocess.run([sys.executable, "-m", "pip", "uninstall", "--quiet", "--yes", *unused], check=True)
