"""The table of servers: for a terminal, as quic-interop-runner's results, as one page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import jinja2

from crosslayer.discover.behaviour import CHECKS, Check, Finding, Result
from crosslayer.discover.emulated import Implementation
from crosslayer.discover.table import aligned
from crosslayer.dns import Protocol

CLIENT = "crosslayer"
_LETTERS = dict(zip(Protocol, "UTSH3Q", strict=True))
_HEADINGS = ("", "transport", "answer", "resumed", "early data", "size", "amplification")
_COLUMNS = ("answer", "resumption", "early", "early-answer", "padding", "amplification")
_SIGNS = {Result.SUCCEEDED: "✓", Result.FAILED: "✕", Result.UNSUPPORTED: "–"}


def _tests() -> Iterable[tuple[str, Check, Protocol]]:
    """Every check over every transport, with its abbreviation."""
    for check in CHECKS:
        for protocol in check.transports:
            yield _LETTERS[protocol] + check.abbreviation, check, protocol


def _by_test(findings: Iterable[Finding]) -> dict[tuple[str, str, str | None], Finding]:
    return {(finding.server, finding.check, finding.transport): finding for finding in findings}


# quic-interop-runner


def interop(
    findings: Sequence[Finding], kinds: Sequence[Implementation], *, began_s: float, ended_s: float
) -> dict[str, Any]:
    """The findings as quic-interop-runner writes its results: this project is the one client.

    Lists of `results` and `measurements` are one a server, in the order of `servers`; what was not run is null.
    """
    found = _by_test(findings)
    servers = list(dict.fromkeys(finding.server for finding in findings))
    results, measurements = [], []
    for server in servers:
        row = [(abbr, check, found.get((server, check.name, str(protocol)))) for abbr, check, protocol in _tests()]
        results.append(
            [{"abbr": abbr, "name": check.name, "result": one.result if one else None} for abbr, check, one in row]
        )
        measurements.append(
            [
                {"name": check.name, "abbr": abbr, "result": one.result, "details": f"{one.value:g} {one.unit}"}
                for abbr, check, one in row
                if one is not None and one.value is not None
            ]
        )
    return {
        "start_time": began_s,
        "end_time": ended_s,
        "log_dir": "",
        "servers": servers,
        "clients": [CLIENT],
        "urls": {CLIENT: "", **{kind.name: kind.url for kind in kinds}},
        "versions": {finding.server: finding.version for finding in findings if finding.version},
        "tests": {
            abbr: {"name": check.name, "desc": f"{protocol}: {check.about}"} for abbr, check, protocol in _tests()
        },
        "quic_version": "0x1",
        "results": results,
        "measurements": measurements,
    }


# For a terminal


def text(findings: Sequence[Finding]) -> str:
    """The table: a line for every transport a server speaks, then what it leaves undone of RFC 9250."""
    lines: list[tuple[str, ...]] = [_HEADINGS]
    asides: list[str] = []
    for server, rows in groupby(findings, key=lambda finding: finding.server):
        own = list(rows)
        if own[0].transport is None:
            asides.append(f"{server}: {own[0].detail}")
            continue
        found = _by_test(own)
        version = own[0].version or ""
        spoken = [p for p in Protocol if found[server, "answer", str(p)].result != Result.UNSUPPORTED]
        for place, protocol in enumerate(spoken):
            lines.append((f"{server} {version}" if place == 0 else "", *_cells(server, protocol, found)))
        asides += _aside(server, own)
    return "\n".join([*aligned(lines), "", *asides])


def _cells(server: str, protocol: Protocol, found: dict[tuple[str, str, str | None], Finding]) -> tuple[str, ...]:
    def cell(check: str) -> str:
        finding = found.get((server, check, str(protocol)))
        return "" if finding is None else shown(finding)

    early, answered = cell("early"), found.get((server, "early-answer", str(protocol)))
    if answered is not None and answered.result == Result.FAILED and answered.value is not None:
        early += ", late"
    return (str(protocol), cell("answer"), cell("resumption"), early, cell("padding"), cell("amplification"))


def shown(finding: Finding) -> str:
    """A finding in a few characters: its number, or else its sign; what is wrong is marked."""
    if finding.value is None:
        return _SIGNS[Result(finding.result)]
    number = f"{finding.value:.0f} B" if finding.unit == "bytes" else f"{finding.value:.2f}"
    return number if finding.result == Result.SUCCEEDED else f"{number} {_SIGNS[Result(finding.result)]}"


def _aside(server: str, rows: list[Finding]) -> list[str]:
    """What a server does of RFC 9250, and what it fails of which the table above has no column."""
    asked = [row for row in rows if (row.asked_by or "").startswith("RFC 9250") and row.result != Result.UNSUPPORTED]
    met = sum(row.result == Result.SUCCEEDED for row in asked)
    said = [f"{met} of {len(asked)} checks of RFC 9250"] if asked else []
    failed: dict[str, list[str]] = {}
    for row in rows:
        if row.result == Result.FAILED and row.check not in _COLUMNS:
            failed.setdefault(f"{row.check} ({row.detail})", []).append(row.transport or "")
    said += [f"{'/'.join(transports)} {what}" for what, transports in failed.items()]
    return [f"{server}: {'; '.join(said)}"] if said else []


# A page


def page(findings: Sequence[Finding], about: str) -> str:
    """The matrix as one page of HTML that needs no network: servers across, checks down."""
    found = _by_test(findings)
    servers = {finding.server: finding for finding in findings}
    groups = [
        (check, [(protocol, [found.get((server, check.name, str(protocol))) for server in servers]) for protocol in of])
        for check, of in ((check, check.transports) for check in CHECKS)
    ]
    template = jinja2.Environment(
        loader=jinja2.PackageLoader("crosslayer.discover"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template("servers.html")
    return template.render(servers=servers, groups=groups, shown=shown, about=about)
