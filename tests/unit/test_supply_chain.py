"""What the project is made of: used, pinned by hash, and listed by one command."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = ["requirements.lock", "setup/go.lock", "setup/lowest.lock", "setup/pinned.lock"]
NOT_IMPORTED = {"ipykernel"}
"""The kernel that notebooks name."""


@pytest.fixture(scope="module")
def sbom() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "setup" / "sbom.py")))


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_a_lock_has_a_hash(sbom: SimpleNamespace, lock: str) -> None:
    packages = list(sbom.python_packages(ROOT / lock))
    lines = (ROOT / lock).read_text(encoding="utf-8").splitlines()
    assert len(packages) == sum("==" in line and not line.startswith((" ", "#")) for line in lines) > 0
    assert [package["name"] for package in packages if "hashes" not in package] == []


def test_every_module_of_go_has_a_hash(sbom: SimpleNamespace) -> None:
    module = tuple(sbom.go_modules())
    required = re.findall(r"^\t\S+ v\S+", (ROOT / "emulation" / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(module) == len(required) > 10
    assert all(re.fullmatch(r"[0-9a-f]{64}", match["properties"][0]["value"]) for match in module)


def test_every_module_of_dnsproxy_has_a_hash() -> None:
    required = set(re.findall(r"^\t(\S+ v\S+)", (ROOT / "setup" / "dnsproxy.mod").read_text("utf-8"), re.MULTILINE))
    sums = [line.rpartition(" ") for line in (ROOT / "setup" / "dnsproxy.sum").read_text("utf-8").splitlines()]
    hashed = {name for name, _, digest in sums if digest.startswith("h1:")}
    built = (ROOT / "emulation" / "go.mod").read_text(encoding="utf-8")
    assert required <= hashed
    assert len(required) > 10
    assert "dnsproxy" not in built, "what it requires is not ours"


@pytest.mark.slow
def test_every_direct_dependency_is_used() -> None:
    imported: set[str] = set()
    for path in [*(ROOT / "lib").rglob("*.py"), *(ROOT / "sites").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    given = importlib.metadata.packages_distributions()
    used = {canonicalize_name(name) for module in imported for name in given.get(module, [])}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}
    assert wanted - used == NOT_IMPORTED


@pytest.mark.slow
def test_both_ways_in_are_listed_the_same_each_time(sbom: SimpleNamespace) -> None:
    documents = sbom.documents()
    assert json.dumps(documents) == json.dumps(sbom.documents())
    for result in documents.values():
        references = [part["bom-ref"] for part in result["components"]]
        assert len(references) == len(set(references))
        assert references == sorted(references)
        assert {"pkg:golang/github.com/quic-go/quic-go", "sites/instagram.com/vendor/react.production.min.js"} <= {
            reference.partition("@")[0] for reference in references
        }
    locked = {part["purl"] for part in documents["setup"]["components"] if "purl" in part}
    for lock in LOCKS[:2]:
        for name, version in sbom.versions(ROOT / lock):
            assert f"pkg:pypi/{name}@{version.replace('+', '%2B')}" in locked
    rev = json.loads((ROOT / "flake.lock").read_text(encoding="utf-8"))["nodes"]["nixpkgs"]["locked"]["rev"]
    assert f"pkg:github/NixOS/nixpkgs@{rev}" in {part["bom-ref"] for part in documents["nix"]["components"]}
