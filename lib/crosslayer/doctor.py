"""What this machine can do, what is missing, and how to get it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from crosslayer.testbed import backends, private
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.programs import find_program


class State(StrEnum):
    """Verdict on one item."""

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
    """`measuring`, `analysis` or `comfort`: what does not work without it."""


_TOOLS = {
    "unshare": ("util-linux", "measuring", "private namespaces"),
    "nsenter": ("util-linux", "measuring", "programs in the server's namespace"),
    "ip": ("iproute2", "measuring", "the guest's bridge"),
    "tc": ("iproute2", "measuring", "netem"),
    "kdig": ("knot-dnsutils (Nix: knot-dns)", "comfort", "an independent DNS client"),
    "tcpdump": ("tcpdump", "comfort", "packet captures"),
    "named": ("bind9 (Nix: bind)", "comfort", "BIND 9: the study `authoritative`, `crosslayer discover`"),
    "kresd": ("knot-resolver (Nix: knot-resolver_5)", "comfort", "Knot Resolver, another one"),
}
_NIX = "`nix develop` has it too."
_ROOT = Path(__file__).parents[2]
_FLAKE_VERSIONS = _ROOT / "nix" / "versions.json"


def examine() -> list[Finding]:
    """Every check, in the order a reader wants them. Starts a few short programs; changes nothing."""
    return [_python(), *_flake(), *_tools(), _dnsproxy(), _namespaces(), *_netem(), *_programs(), *_browser(), *_room()]


def can_measure(findings: list[Finding]) -> bool:
    """True where nothing that measuring needs is missing."""
    return not any(f.state is State.MISSING and f.needed_for in ("measuring", "analysis") for f in findings)


def _python() -> Finding:
    locked = _locked_versions()
    differing = []
    for name in _requirements():
        versions = locked.get(name)
        if versions is None:
            continue
        try:
            have = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if have not in versions:
            differing.append(f"{name} {have} (locked {' or '.join(versions)})")
    detail = f"Python {platform.python_version()}"
    if differing:
        return Finding(
            "python",
            State.NOTE,
            f"{detail}; differs from requirements.lock: {', '.join(differing)}",
            "Kept in the campaign's record.",
            "analysis",
        )
    return Finding(
        "python", State.OK, f"{detail}, packages as in requirements.lock" if locked else detail, needed_for="analysis"
    )


def _requirements() -> list[str]:
    """Names of what crosslayer requires, extras included; what those require in turn is not listed."""
    wanted = importlib.metadata.requires("crosslayer") or []
    return sorted({re.split(r"[<>=!~ ;\[]", requirement, maxsplit=1)[0] for requirement in wanted})


def _flake() -> list[Finding]:
    """Where the two ways in, Nix and pip, give other versions; known in a checkout only."""
    if not _FLAKE_VERSIONS.exists():
        return []
    kept = json.loads(_FLAKE_VERSIONS.read_text(encoding="utf-8"))
    differing = [
        f"{name} {versions['flake']} ({versions['requirements.lock']})"
        for name, versions in sorted(kept["packages"].items())
        if versions["flake"] != versions["requirements.lock"]
    ]
    detail = f"Python {kept['python']}; other versions than requirements.lock: {', '.join(differing) or 'none'}"
    return [Finding("nix develop", State.OK, f"{detail} [{kept['known_from']}]", needed_for="comfort")]


def _locked_versions() -> dict[str, list[str]]:
    """Versions in the lock by name; a package may have several, each for other versions of Python."""
    lock = _ROOT / "requirements.lock"
    if not lock.exists():
        return {}
    versions: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", lock.read_text(encoding="utf-8"), re.MULTILINE):
        versions.setdefault(name, []).append(version)
    return versions


def _tools() -> list[Finding]:
    findings = []
    for name, (package, needed, purpose) in _TOOLS.items():
        found = shutil.which(name)
        if found:
            findings.append(Finding(name, State.OK, f"{found} ({purpose})", needed_for=needed))
        else:
            state = State.MISSING if needed == "measuring" else State.NOTE
            findings.append(
                Finding(name, state, f"not found ({purpose})", f"Install {package}: `make setup`. {_NIX}", needed)
            )
    return findings


def _dnsproxy() -> Finding:
    """AdGuard's proxy, which Batenburg 2022 had at both ends: a second configuration of the study `authoritative`."""
    where = shutil.which("dnsproxy")
    if where is not None:
        return Finding("dnsproxy", State.OK, f'{where} (proxy = "dnsproxy" in plans of `authoritative`)', "", "comfort")
    way = f"The study `authoritative` has this project's stub and server in its places. {_NIX}"
    return Finding("dnsproxy", State.NOTE, "not found, and Debian has no package of it", way, "comfort")


def _namespaces() -> Finding:
    unshare = shutil.which("unshare")
    if unshare is None:
        return Finding("namespaces", State.MISSING, "cannot be tried without unshare", "Install util-linux.")
    refusal = private.refused(unshare)
    if refusal is None:
        return Finding("namespaces", State.OK, "private user, network, mount and PID namespaces work without root")
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
        way = "In a container, start it with --privileged or with --security-opt " + " --security-opt ".join(options)
    return Finding("namespaces", State.MISSING, refusal, way)


def _netem() -> list[Finding]:
    unshare, tc = shutil.which("unshare"), shutil.which("tc")
    works = False
    if unshare and tc:
        words = [
            unshare,
            "--user",
            "--map-root-user",
            "--net",
            "--",
            tc,
            "qdisc",
            "add",
            "dev",
            "lo",
            "root",
            "netem",
            "delay",
            "1ms",
        ]
        works = subprocess.run(words, capture_output=True, check=False).returncode == 0
    kernel = os.uname().release
    netem = (
        Finding("netem", State.OK, f"kernel {kernel} has sch_netem: the netem backend will be used")
        if works
        else Finding(
            "netem",
            State.NOTE,
            f"kernel {kernel} has no sch_netem",
            "Not needed where the uml backend works; else: sudo modprobe sch_netem.",
        )
    )
    try:
        uml_kernel, modules, _init = backends.find_uml()
        uml = Finding(
            "uml", State.OK, f"{uml_kernel}, {modules.name}" + ("" if works else ": the uml backend will be used")
        )
    except TestbedError as error:
        uml = Finding(
            "uml",
            State.NOTE if works else State.MISSING,
            error.what,
            error.next_step if not works else "Not needed: netem works.",
        )
    return [netem, uml]


def _programs() -> list[Finding]:
    findings = []
    for name, variable, state in (
        ("crosslayer-server", "CROSSLAYER_SERVER_BIN", State.MISSING),
        ("crosslayer-stub", "CROSSLAYER_STUB_BIN", State.NOTE),
        ("crosslayer-wire", "CROSSLAYER_WIRE", State.NOTE),
    ):
        try:
            findings.append(Finding(name, State.OK, str(find_program(name, variable))))
        except TestbedError as error:
            findings.append(Finding(name, state, error.what, error.next_step))
    return findings


def _browser() -> list[Finding]:
    from crosslayer.browser.programs import BrowserError, find_browser

    try:
        found = find_browser()
    except BrowserError as error:
        return [Finding("chromium", State.MISSING, error.what, error.next_step)]
    return [
        Finding("chromium", State.OK, f"{found.browser} {found.browser_version}"),
        Finding("chromedriver", State.OK, f"{found.driver} {found.driver_version}"),
    ]


def _room() -> list[Finding]:
    free_gb = shutil.disk_usage(Path.cwd()).free / 1e9
    memory = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    available_gb = int(memory["MemAvailable"].split()[0]) / 1e6
    disk = Finding("disk", State.OK, f"{free_gb:.1f} GB free here", needed_for="analysis")
    if free_gb < 1:
        disk = Finding(
            "disk", State.NOTE, f"{free_gb:.1f} GB free here", "A paper-size campaign needs about 1 GB.", "analysis"
        )
    ram = Finding("memory", State.OK, f"{available_gb:.1f} GB available, {os.cpu_count()} cores")
    if available_gb < 2 or (os.cpu_count() or 1) < 2:
        ram = Finding(
            "memory",
            State.NOTE,
            ram.detail,
            "Chromium, server and link want 2 GB and 2 cores; timings suffer with less.",
        )
    return [disk, ram]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
