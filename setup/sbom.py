"""Write the software bill of materials in CycloneDX 1.6: `make sbom`. It uses only the standard library.

    build/sbom/setup.cdx.json   set-up without Nix: requirements.lock, setup/go.lock, go.mod, Debian packages
    build/sbom/nix.cdx.json     nix develop: the pinned nixpkgs, versions of setup/pinned.in, nix/packages.json, go.mod

A component has a hash if it is pinned by one, and a licence if the environment or Go's module cache has it. The
documents have no time and no serial number, so the same tree and the same installed packages give the same bytes.
"""

from __future__ import annotations

import base64
import importlib.metadata
import json
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).parents[1]
_LICENCES = {  # patterns; the first that matches determines the licence
    "Apache-2.0": r"Apache License\s+Version 2\.0",
    "MPL-2.0": r"Mozilla Public License,? (?:Version|version|v\.) ?2\.0",
    "MIT": r"Permission is hereby granted, free of charge",
    "BSD-3-Clause": r"Redistribution and use in source(?s:.*)(?:Neither the name|The name of)",
    "BSD-2-Clause": r"Redistribution and use in source",
    "Unlicense": r"released into the public domain",
}
Component = dict[str, Any]


def python_packages(lock: Path) -> Iterator[Component]:
    """Every package of a pip lock file, with the hashes of its files."""
    for entry in re.split(r"\n(?=\S)", lock.read_text(encoding="utf-8")):
        if match := re.match(r"([A-Za-z0-9._-]+)==([^\s;\\]+)", entry):
            name, version = match[1], match[2]
            hashes = [{"alg": "SHA-256", "content": digest} for digest in re.findall(r"sha256:([0-9a-f]{64})", entry)]
            yield component("pypi", name, version, licence=python_licence(name, version), hashes=hashes)


def python_licence(name: str, version: str) -> str | None:
    """Licence in the metadata of an installed package; None if it is not installed in this version."""
    try:
        about = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    if about["Version"] != version:
        return None
    classified = [
        line.rpartition(":: ")[2] for line in about.get_all("Classifier", []) if line.startswith("License ::")
    ]
    short = [text for text in (about.get("License-Expression"), about.get("License")) if text and "\n" not in text]
    return next((text for text in (*short, *classified) if text != "UNKNOWN"), None)


def go_modules() -> Iterator[Component]:
    """Every module of go.mod, with its hash from go.sum."""
    module = ROOT / "emulation"
    sums = {
        (name, version): digest
        for name, version, digest in (line.split() for line in (module / "go.sum").read_text("utf-8").splitlines())
    }
    cache = module_cache()
    for name, version in re.findall(r"^\t(\S+) (v\S+)", (module / "go.mod").read_text(encoding="utf-8"), re.MULTILINE):
        digest = sums[name, version].removeprefix("h1:")
        module = component("golang", name, version, licence=go_licence(cache, name, version))
        # Go's hash is that of a list of files' hashes. CycloneDX has no hash type for this, so it is a property.
        yield module | {"properties": [{"name": "go:h1", "value": base64.b64decode(digest).hex()}]}


def module_cache() -> Path | None:
    """Folder of Go's module cache; None without Go."""
    try:
        go = subprocess.run([ROOT / "setup" / "go"], capture_output=True, text=True, check=True).stdout.strip()
        return Path(
            subprocess.run([go, "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def go_licence(cache: Path | None, name: str, version: str) -> str | None:
    """Licence of a module by the text in the module cache; None without the module or without a matching pattern."""
    escaped = re.sub(r"[A-Z]", lambda upper: f"!{upper[0].lower()}", f"{name}@{version}")
    texts = sorted((cache / escaped).glob("[Ll][Ii][Cc][Ee][Nn][CcSs][Ee]*")) if cache else []
    texts += sorted((cache / escaped).glob("COPYING*")) if cache else []
    text = texts[0].read_text(encoding="utf-8", errors="replace") if texts and texts[0].is_file() else ""
    return next((known for known, pattern in _LICENCES.items() if re.search(pattern, text)), None)


def debian_packages() -> Iterator[Component]:
    """Packages that setup/system-packages installs. They have no hash: apt checks the signature of the archive."""
    script = (ROOT / "setup" / "system-packages").read_text(encoding="utf-8")
    query = shutil.which("dpkg-query")  # other systems than Debian have none, so versions are unknown there
    for name in sorted(set(re.findall(r"\bneed ([a-z][a-z0-9.+-]+) ", script))):
        version = None
        if query:
            command = [query, "-W", "-f", "${Version}", name]
            version = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        yield component("deb", name, version or None, namespace="debian")


def nix_packages() -> Iterator[Component]:
    """The pinned nixpkgs with its hash, and the packages that are used from it."""
    listed = json.loads((ROOT / "nix" / "packages.json").read_text(encoding="utf-8"))
    pinned = json.loads((ROOT / "flake.lock").read_text(encoding="utf-8"))["nodes"]["nixpkgs"]["locked"]
    hashes = [{"alg": "SHA-256", "content": base64.b64decode(pinned["narHash"].removeprefix("sha256-")).hex()}]
    yield component("github", pinned["repo"], pinned["rev"], namespace=pinned["owner"], licence="MIT", hashes=hashes)
    own = listed["own"]
    for name, version in versions(ROOT / "setup" / "pinned.in"):
        if name not in own:
            yield component("pypi", name, version, licence=python_licence(name, version))
    for name, wheel in own.items():
        digest = base64.b64decode(wheel["hash"].removeprefix("sha256-")).hex()
        hashes = [{"alg": "SHA-256", "content": digest}]
        licence = python_licence(name, wheel["version"])
        yield component("pypi", name, wheel["version"], licence=licence, hashes=hashes)
    for name in sorted({name for tools in listed["tools"].values() for name in tools}):
        yield component("nix", name, None)


def versions(lock: Path) -> list[tuple[str, str]]:
    """Names and versions in a list of requirements."""
    return re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", lock.read_text(encoding="utf-8"), re.MULTILINE)


def vendored() -> Iterator[Component]:
    """Committed files of third parties."""
    for file in sorted((ROOT / "sites").glob("*/vendor/*.js")):
        hashes = [{"alg": "SHA-256", "content": sha256(file.read_bytes()).hexdigest()}]
        path = str(file.relative_to(ROOT))
        yield {
            "type": "file",
            "bom-ref": path,
            "name": path,
            "hashes": hashes,
            "licenses": [{"license": {"id": "MIT"}}],
        }


def component(
    kind: str, name: str, version: str | None, *, namespace: str = "", licence: str | None = None,
    hashes: list[dict[str, str]] | None = None,
) -> Component:  # fmt: skip
    """CycloneDX component with its package URL."""
    purl = f"pkg:{kind}/{namespace + '/' if namespace else ''}{quote(name, safe='/')}"
    purl += f"@{quote(version, safe='')}" if version else ""
    result: Component = {"type": "library", "bom-ref": purl, "name": name, "purl": purl}
    result |= {"version": version} if version else {}
    result |= {"hashes": hashes} if hashes else {}
    return result | ({"licenses": [{"license": {"name": licence}}]} if licence else {})


def document(components: list[Component]) -> dict[str, Any]:
    """CycloneDX document: components sorted by reference, without duplicates."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    about = component("pypi", project["name"], project["version"], licence=project["license"])
    each = {one["bom-ref"]: one for one in components}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": about | {"type": "application"}},
        "components": [each[reference] for reference in sorted(each)],
    }


def documents() -> dict[str, dict[str, Any]]:
    """Documents for set-up without Nix (`setup`) and with Nix (`nix`), by the stem of their file name."""
    setup = ROOT / "setup"
    shared = [*go_modules(), *vendored()]
    without = [*python_packages(ROOT / "requirements.lock"), *python_packages(setup / "go.lock"), *debian_packages()]
    return {"setup": document([*without, *shared]), "nix": document([*nix_packages(), *shared])}


def main() -> None:
    """Write both documents, and print the number of components by licence."""
    folder = ROOT / "build" / "sbom"
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in documents().items():
        (folder / f"{name}.cdx.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        counts = Counter(
            (part["licenses"][0]["license"].get("name") or "MIT") if "licenses" in part else "unknown"
            for part in document["components"]
        )
        pinned = sum("hashes" in part or "properties" in part for part in document["components"])
        print(f"build/sbom/{name}.cdx.json: {len(document['components'])} components, {pinned} with a hash")
        for licence, number in counts.most_common():
            print(f"  {number:4} {licence}")


if __name__ == "__main__":
    main()
