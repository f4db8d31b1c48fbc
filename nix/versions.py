#!/usr/bin/env python3
"""Write nix/versions.json: the version of every requirement by the flake's pin and by requirements.lock.

    nix/versions.py                                    asks Nix what the pin gives; without Nix that side is kept
    nix/versions.py --flake FILE --known-from TEXT     takes it from FILE, and says where that is known from

`crosslayer doctor` shows the differences. Run it after a change of flake.lock or requirements.lock.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUT = ROOT / "nix" / "versions.json"
EVALUATE = ["nix", "eval", "--json", f"{ROOT}#crosslayer.versions"]


def requirements() -> list[str]:
    """Names in pyproject.toml: to build, to run, and of every extra."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    wanted = [*pyproject["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    return sorted({re.split(r"[<>=!~ ;\[]", requirement, maxsplit=1)[0] for requirement in wanted})


def locked() -> dict[str, str]:
    """Versions in requirements.lock by name."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", lock, re.MULTILINE))


def table(flake: dict[str, Any], known_from: str) -> dict[str, Any]:
    """The content of versions.json.

    Parameters
    ----------
    flake
        `python` and `packages` (name to version), as `nix eval --json .#crosslayer.versions` prints them.
    known_from
        Where they are known from, for the reader.
    """
    pin = json.loads((ROOT / "flake.lock").read_text(encoding="utf-8"))["nodes"]["nixpkgs"]["locked"]["rev"]
    lock = locked()
    return {
        "nixpkgs": pin,
        "known_from": known_from,
        "python": flake["python"],
        "packages": {
            name: {"flake": flake["packages"].get(name), "requirements.lock": lock.get(name)} for name in requirements()
        },
    }


def kept() -> tuple[dict[str, Any], str]:
    """The flake's side of the file as it is, and where it is known from."""
    old = json.loads(OUT.read_text(encoding="utf-8"))
    packages = {name: versions["flake"] for name, versions in old["packages"].items()}
    return {"python": old["python"], "packages": packages}, old["known_from"]


def main(arguments: list[str]) -> int:
    """Write the file; the exit status is Nix's where it fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--flake", type=Path, help="JSON as `nix eval` would print it")
    parser.add_argument("--known-from", help="where that file is from")
    given = parser.parse_args(arguments)
    if (given.flake is None) != (given.known_from is None):
        parser.error("--flake and --known-from go together")
    if given.flake:
        flake, known_from = json.loads(given.flake.read_text(encoding="utf-8")), given.known_from
    elif shutil.which("nix") is None:
        flake, known_from = kept()
    else:
        evaluation = subprocess.run(EVALUATE, stdout=subprocess.PIPE, text=True, check=False)
        if evaluation.returncode != 0:
            return evaluation.returncode
        flake, known_from = json.loads(evaluation.stdout), "evaluated by Nix"
    OUT.write_text(json.dumps(table(flake, known_from), indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
