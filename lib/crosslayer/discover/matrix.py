"""The table of servers: for a terminal, in the format of quic-interop-runner, and as an HTML page. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

import jinja2

from crosslayer.discover.behaviour import CHECKS, BehaviourCheck, Result, ServerFinding
from crosslayer.discover.emulated import Implementation
from crosslayer.discover.table import aligned
from crosslayer.dns import Protocol

CLIENT = "crosslayer"
_LETTERS = dict(zip(Protocol, "UTSH3Q", strict=True))
_HEADINGS = ("", "transport", "answer", "resumed", "early data", "size", "amplification")
_COLUMNS = ("answer", "resumption", "early", "early-answer", "padding", "amplification")
_SIGNS = {Result.SUCCEEDED: "✓", Result.FAILED: "✕", Result.UNSUPPORTED: "–"}


def _tests() -> Iterable[tuple[str, BehaviourCheck, Protocol]]:
    """One test for each check and each of its transports: the test's abbreviation, the check, and the transport."""
    for check in CHECKS:
        for protocol in check.transports:
            yield _LETTERS[protocol] + check.abbreviation, check, protocol


def _by_test(findings: Iterable[ServerFinding]) -> dict[tuple[str, str, str | None], ServerFinding]:
    return {(finding.server, finding.check, finding.transport): finding for finding in findings}


# quic-interop-runner


def interop(
    findings: Sequence[ServerFinding], kinds: Sequence[Implementation], *, began_s: float, ended_s: float
) -> dict[str, Any]:
    """The findings in the result format of quic-interop-runner, with crosslayer as the only client.

    The lists `results` and `measurements` have one entry per server, in the order of `servers`. The result of a check
    that did not run is null.
    """
    by_test = _by_test(findings)
    servers = list(dict.fromkeys(finding.server for finding in findings))
    results, measurements = [], []
    for server in servers:
        row = [(abbr, check, by_test.get((server, check.name, str(protocol)))) for abbr, check, protocol in _tests()]
        results.append(
            [
                {"abbr": abbr, "name": check.name, "result": finding.result if finding else None}
                for abbr, check, finding in row
            ]
        )
        measurements.append(
            [
                {
                    "name": check.name,
                    "abbr": abbr,
                    "result": finding.result,
                    "details": f"{finding.value:g} {finding.unit}",
                }
                for abbr, check, finding in row
                if finding is not None and finding.value is not None
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


def text(findings: Sequence[ServerFinding]) -> str:
    """The table: one line per server and supported transport, then each server's RFC 9250 result and failed checks."""
    lines: list[tuple[str, ...]] = [_HEADINGS]
    notes: list[str] = []
    for server, rows in groupby(findings, key=lambda finding: finding.server):
        own = list(rows)
        if own[0].transport is None:
            notes.append(f"{server}: {own[0].detail}")
            continue
        by_test = _by_test(own)
        version = own[0].version or ""
        spoken = [p for p in Protocol if by_test[server, "answer", str(p)].result != Result.UNSUPPORTED]
        for index, protocol in enumerate(spoken):
            lines.append((f"{server} {version}" if index == 0 else "", *_cells(server, protocol, by_test)))
        notes += _notes(server, own)
    return "\n".join([*aligned(lines), "", *notes])


def _cells(
    server: str, protocol: Protocol, by_test: dict[tuple[str, str, str | None], ServerFinding]
) -> tuple[str, ...]:
    def cell(check: str) -> str:
        finding = by_test.get((server, check, str(protocol)))
        return "" if finding is None else shown(finding)

    early, answered = cell("early"), by_test.get((server, "early-answer", str(protocol)))
    if answered is not None and answered.result == Result.FAILED and answered.value is not None:
        early += ", late"
    return (str(protocol), cell("answer"), cell("resumption"), early, cell("padding"), cell("amplification"))


def shown(finding: ServerFinding) -> str:
    """A finding in a few characters: its value or, if it has none, one of the signs ✓, ✕ and –.

    The value of a failed check is followed by ✕.
    """
    if finding.value is None:
        return _SIGNS[Result(finding.result)]
    number = f"{finding.value:.0f} B" if finding.unit == "bytes" else f"{finding.value:.2f}"
    return number if finding.result == Result.SUCCEEDED else f"{number} {_SIGNS[Result(finding.result)]}"


def _notes(server: str, rows: list[ServerFinding]) -> list[str]:
    """Number of RFC 9250 checks that a server passed, and its failed checks that have no column in the table."""
    rules = [row for row in rows if (row.asked_by or "").startswith("RFC 9250") and row.result != Result.UNSUPPORTED]
    met = sum(row.result == Result.SUCCEEDED for row in rules)
    notes = [f"{met} of {len(rules)} checks of RFC 9250"] if rules else []
    failed: dict[str, list[str]] = {}
    for row in rows:
        if row.result == Result.FAILED and row.check not in _COLUMNS:
            failed.setdefault(f"{row.check} ({row.detail})", []).append(row.transport or "")
    notes += [f"{'/'.join(transports)} {what}" for what, transports in failed.items()]
    return [f"{server}: {'; '.join(notes)}"] if notes else []


# A page


def page(findings: Sequence[ServerFinding], about: str) -> str:
    """The table as a single HTML page that needs no network: one column per server, rows by check and transport."""
    by_test = _by_test(findings)
    servers = {finding.server: finding for finding in findings}
    groups = [
        (
            check,
            [(protocol, [by_test.get((server, check.name, str(protocol))) for server in servers]) for protocol in of],
        )
        for check, of in ((check, check.transports) for check in CHECKS)
    ]
    template = jinja2.Environment(
        loader=jinja2.PackageLoader("crosslayer.discover"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template("servers.html")
    return template.render(servers=servers, groups=groups, shown=shown, about=about)
