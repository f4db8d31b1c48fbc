"""Check what this machine can measure and what is missing, and say how to install each missing item."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from crosslayer import resources
from crosslayer.errors import CrosslayerError
from crosslayer.guest import find_kernel
from crosslayer.testbed import backends, namespaces
from crosslayer.vocabulary import BROWSERS, Browser


class State(StrEnum):
    """State of a checked item."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    item: str
    state: State
    detail: str
    way_out: str = ""
    needed_for: str = "measuring"
    """Purpose that needs the item: `measuring`, `analysis` or `comfort` (optional functions)."""


_TOOLS = {
    "unshare": ("util-linux", "measuring", "private namespaces"),
    "nsenter": ("util-linux", "measuring", "programs in the server's namespace"),
    "ip": ("iproute2", "measuring", "the guest's bridge"),
    "tc": ("iproute2", "measuring", "netem"),
    "kdig": ("knot-dnsutils (Nix: knot-dns)", "comfort", "an independent DNS client"),
    "curl": ("curl", "comfort", "a web client to put on a link"),
    "tcpdump": ("tcpdump", "comfort", "packet captures"),
    "named": ("bind9 (Nix: bind)", "comfort", "BIND 9, an authoritative server; `crosslayer discover`"),
    "kresd": ("knot-resolver (Nix: knot-resolver_5)", "comfort", "Knot Resolver, for `crosslayer servers`"),
    "knotd": ("knot (Nix: knot-dns)", "comfort", "Knot DNS, for the same"),
    "unbound": ("unbound (Nix: unbound-full)", "comfort", "Unbound, for the same"),
    "dnsdist": ("dnsdist", "comfort", "dnsdist, for the same"),
}
_NOT_BY_SETUP = ("knotd",)
"""Tools that `make setup` does not install: Debian's Knot DNS is too old for DoQ."""
_NIX = "`nix develop` has it too."
_OWN = {
    "server": State.MISSING,
    "stub": State.NOTE,
    "uml-link": State.NOTE,
    "guest": State.NOTE,
    "profiles": State.MISSING,
    "sites": State.MISSING,
    "published": State.NOTE,
}
_GO = "go build -C emulation -o ../build/ ./cmd/..."
_VERSIONS = ("requirements.lock", "setup/pinned.in")
"""Files with the package versions that `make setup` and `nix develop` install."""


def examine() -> list[Finding]:
    """Run all checks; returns the findings in the order of the report. Starts a few short programs; changes nothing."""
    guest = _guest()
    namespaces = _namespaces(guest.state is State.OK)
    in_guest = namespaces.state is State.NOTE
    own = [*_own(), *_browser(), *_other_browsers(), *_room()]
    return [_python(), *_tools(), _dnsproxy(), namespaces, *([] if in_guest else _netem()), guest, *own]


def can_measure(findings: list[Finding]) -> bool:
    """Whether everything that measuring needs is available."""
    return not _in_the_way(findings)


def verdict(findings: list[Finding]) -> str:
    """One line: whether this machine can measure and with which netem, or what is missing.

    The line also says that the machine can show the committed campaigns.
    """
    if missing := _in_the_way(findings):
        items, way = ", ".join(finding.item for finding in missing), missing[0].way_out
        return f"This machine cannot measure ({items}): it shows the committed campaigns. To measure: {way}"
    netem = any(finding.item == "netem" and finding.state is State.OK for finding in findings)
    over = "the netem of its kernel" if netem else "netem in a User-Mode Linux guest"
    return f"This machine can measure, over {over}. To analyse a committed campaign: `crosslayer report data/raw/NAME`."


def _in_the_way(findings: list[Finding]) -> list[Finding]:
    return [f for f in findings if f.state is State.MISSING and f.needed_for in ("measuring", "analysis")]


def _python() -> Finding:
    """Finding on the installed packages: their differences from the file of `_VERSIONS` that matches them best."""
    detail = f"Python {platform.python_version()}"
    installed = _installed()
    differing = {}
    for file in _VERSIONS:
        named = _named_versions(file)
        if named:
            differing[file] = [
                f"{name} {have} ({' or '.join(named[name])})"
                for name, have in installed.items()
                if name in named and have not in named[name]
            ]
    if not differing:
        return Finding("python", State.OK, detail, needed_for="analysis")
    nearest = min(differing, key=lambda file: len(differing[file]))
    if not differing[nearest]:
        return Finding("python", State.OK, f"{detail}, packages as in {nearest}", needed_for="analysis")
    detail += f"; differs from {nearest}: {', '.join(differing[nearest])}"
    return Finding("python", State.NOTE, detail, "Kept in the campaign's record.", "analysis")


def _installed() -> dict[str, str]:
    """Installed versions of crosslayer's direct requirements, including extras."""
    wanted = importlib.metadata.requires("crosslayer") or []
    result = {}
    for name in sorted({re.split(r"[<>=!~ ;\[]", requirement, maxsplit=1)[0] for requirement in wanted}):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            result[name] = importlib.metadata.version(name)
    return result


def _named_versions(file: str) -> dict[str, list[str]]:
    """Versions that a file of `_VERSIONS` names for each package; several if they depend on the version of Python."""
    root = resources.checkout()
    if root is None or not (root / file).exists():
        return {}
    versions: dict[str, list[str]] = {}
    for name, version in re.findall(
        r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", (root / file).read_text(encoding="utf-8"), re.MULTILINE
    ):
        versions.setdefault(name, []).append(version)
    return versions


def _tools() -> list[Finding]:
    findings = []
    for name, (package, needed, purpose) in _TOOLS.items():
        if result := resources.find_program(name):
            findings.append(Finding(name, State.OK, f"{result} ({purpose})", needed_for=needed))
            continue
        state = State.MISSING if needed == "measuring" else State.NOTE
        way = f"Install {package}{'' if name in _NOT_BY_SETUP else ': `make setup`'}. {_NIX}"
        findings.append(Finding(name, state, f"not found ({purpose})", way, needed))
    return findings


def _dnsproxy() -> Finding:
    """Finding on AdGuard's dnsproxy, which Batenburg 2022 used at both ends of kept connections."""
    try:
        where = resources.locate("dnsproxy").path
    except resources.ResourceError as error:
        way = f"This project's stub and server stand in its places. {error.next_step}"
        return Finding("dnsproxy", State.NOTE, "not found, and Debian has no package of it", way, "comfort")
    return Finding("dnsproxy", State.OK, f'{where} (options.proxy = "dnsproxy" in a plan)', "", "comfort")


def _guest() -> Finding:
    """Finding on the guest. It provides virtual time; if the host refuses namespaces, it also provides these."""
    try:
        kernel, _init = find_kernel(), resources.locate("guest")
    except CrosslayerError as error:
        return Finding("guest", State.NOTE, f"{error.what}: no virtual clock", error.next_step, "comfort")
    slower = "" if kernel.patch_sha256 else ", without the patch that makes reading the clock cheap"
    return Finding("guest", State.OK, f"{kernel.path}, {kernel.source}{slower} (--clock virtual)", "", "comfort")


def _namespaces(guest: bool) -> Finding:
    unshare = resources.find_program("unshare")
    if unshare is None:
        return Finding("namespaces", State.MISSING, "cannot be tried without unshare", "Install util-linux.")
    refusal = namespaces.refused(unshare)
    if refusal is None:
        return Finding("namespaces", State.OK, "private user, network, mount and PID namespaces work without root")
    if guest:
        detail = f"{refusal}: everything that measures runs in the guest"
        return Finding(
            "namespaces", State.NOTE, detail, "--clock virtual is accurate there; by the wall clock it is slow."
        )
    if _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        way = (
            "Ubuntu's AppArmor restricts them: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0 "
            "(until the next boot), or run as root."
        )
    elif _read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        way = "sudo sysctl kernel.unprivileged_userns_clone=1 (until the next boot), or run as root."
    elif _read("/proc/sys/user/max_user_namespaces") == "0":
        way = "sudo sysctl user.max_user_namespaces=10000 (until the next boot)."
    else:
        options = ("seccomp=unconfined", "systempaths=unconfined", "apparmor=unconfined")
        way = f"In a container, start it with --privileged or with --security-opt {' --security-opt '.join(options)}."
    way += " Or `make guest`: everything that measures runs in a guest then."
    return Finding("namespaces", State.MISSING, refusal, way)


def _netem() -> list[Finding]:
    unshare, tc = resources.find_program("unshare"), resources.find_program("tc")
    works = False
    if unshare and tc:
        trial = f"{unshare} --user --map-root-user --net -- {tc} qdisc add dev lo root netem delay 1ms"
        works = subprocess.run(trial.split(), capture_output=True, check=False).returncode == 0
    kernel = f"kernel {os.uname().release}"
    if works:
        netem = Finding("netem", State.OK, f"{kernel} has sch_netem: the netem backend will be used")
    else:
        way = "Not needed where the uml backend works; else: sudo modprobe sch_netem."
        netem = Finding("netem", State.NOTE, f"{kernel} has no sch_netem", way)
    try:
        uml_kernel, version, _modules, _init = backends.find_uml()
    except CrosslayerError as error:
        state, way = (State.NOTE, "Not needed: netem works.") if works else (State.MISSING, error.next_step)
        return [netem, Finding("uml", state, error.what, way)]
    used = "" if works else ": the uml backend will be used"
    return [netem, Finding("uml", State.OK, f"{uml_kernel}, {version}{used}")]


def _own() -> list[Finding]:
    """Findings on this project's own programs and files.

    Each finding has the path and the origin of its item. It also says if a program is older than its source code.
    """
    library = Path(__file__).parent
    findings = [Finding("library", State.OK, f"{library} ({'this checkout' if resources.home() else 'installed'})")]
    root = resources.checkout()
    for thing, state in _OWN.items():
        name = resources.RESOURCES[thing].program or thing
        try:
            location = resources.locate(thing)
        except resources.ResourceError as error:
            what = f"{error.where}: {error.what}" if error.where else error.what
            findings.append(Finding(name, state, what, error.next_step))
            continue
        result = Finding(name, State.OK, f"{location.path} ({location.source})")
        ours = resources.RESOURCES[thing].program and location.source == "this checkout"
        if root and ours and _older_than_go(location.path, root / "emulation"):
            detail = f"{result.detail}, older than the Go code in emulation/"
            result = Finding(name, State.NOTE, detail, f"`make setup`, or `{_GO}`.")
        findings.append(result)
    return findings


def _older_than_go(program: Path, sources: Path) -> bool:
    built_s = program.stat().st_mtime
    return any(source.stat().st_mtime > built_s for source in sources.rglob("*.go"))


def _browser() -> list[Finding]:
    from crosslayer.browser.programs import BrowserError, find_browser

    try:
        result = find_browser()
    except BrowserError as error:
        return [Finding("chromium", State.MISSING, error.what, error.next_step)]
    return [
        Finding("chromium", State.OK, f"{result.browser} {result.browser_version}"),
        Finding("chromedriver", State.OK, f"{result.driver} {result.driver_version}"),
    ]


def _other_browsers() -> list[Finding]:
    return [_other_browser(name) for name in BROWSERS if name != Browser.CHROMIUM]


def _other_browser(name: str) -> Finding:
    from crosslayer.browser.programs import BrowserError, find_browser

    try:
        result = find_browser(name)
    except BrowserError as error:
        return Finding(name, State.NOTE, error.what, f"Only for --browser {name}. {error.next_step}", "comfort")
    return Finding(name, State.OK, f"{result.browser} {result.browser_version} (--browser {name})", "", "comfort")


def _room() -> list[Finding]:
    free_gb = shutil.disk_usage(Path.cwd()).free / 1e9
    memory = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    available_gb = int(memory["MemAvailable"].split()[0]) / 1e6
    cores = os.cpu_count() or 1
    disk, ram = f"{free_gb:.1f} GB free here", f"{available_gb:.1f} GB available, {cores} cores"
    more_disk = "A paper-size campaign needs about 1 GB." if free_gb < 1 else ""
    more_ram = "Chromium, server and link want 2 GB and 2 cores; timings suffer with less."
    more_ram = more_ram if available_gb < 2 or cores < 2 else ""
    return [
        Finding("disk", State.NOTE if more_disk else State.OK, disk, more_disk, "analysis"),
        Finding("memory", State.NOTE if more_ram else State.OK, ram, more_ram),
    ]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
