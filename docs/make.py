"""Write what the documents derive from code and data: `python docs/make.py`.

`testbed.svg` shows the testbed, `reference/studies.md` the studies, `reference/plan.md` the keys of a plan. The tables
of responses and timers in `findings/fallback.md` are from its campaign.
"""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import Any

import polars as pl

from crosslayer.campaign import plan
from crosslayer.campaign.dataset import Dataset
from crosslayer.studies import STUDIES
from crosslayer.studies.fallback.cases import CASES, SECTIONS
from crosslayer.studies.fallback.figures import CLIENTS
from crosslayer.studies.fallback.timers import TIMERS, delays
from crosslayer.study import Study
from crosslayer.vocabulary import Protocol

DOCS = Path(__file__).parent
CAMPAIGNS = DOCS.parent / "data" / "raw"

WIDTH, HEIGHT = 760, 300
INK, MUTED, BLUE, PAPER, TINT = "#1a1a1a", "#5a5a5a", "#0062a0", "#ffffff", "#f5f5f2"
TRANSPORTS = [str(protocol) for protocol in Protocol]
"""DNS transports of the server."""

TITLE = "The testbed"
DESCRIPTION = (
    "On one machine, without root: a client namespace with browser, DNS clients and stub; a link emulated by netem "
    "with delay, rate, queue and loss in each direction; a server namespace with a DNS and web server that share "
    "TLS ticket keys. The link is checked before and after each round; the server log confirms each condition."
)


def text(
    x: float, y: float, content: str, *, size: int = 13, bold: bool = False, fill: str = INK, end: bool = False
) -> str:
    """A line of text, centred at x; `end` makes it begin at x."""
    weight = ' font-weight="bold"' if bold else ""
    anchor = "" if end else ' text-anchor="middle"'
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}"{weight}{anchor}>{escape(content)}</text>'


def box(x: float, y: float, width: float, height: float, heading: str, lines: list[str]) -> str:
    """A rounded box with a heading and lines below it."""
    middle = x + width / 2
    frame = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{PAPER}" stroke="{INK}"/>'
    rows = [text(middle, y + 46 + 20 * row, line, size=12) for row, line in enumerate(lines)]
    return "\n".join([frame, text(middle, y + 22, heading, bold=True), *rows])


def arrow(x: float, y: float, length: float) -> str:
    """A horizontal arrow; a negative length points to the left."""
    head = 6 if length > 0 else -6
    return (
        f'<path d="M{x:g} {y:g}h{length:g}m{-head:g} -4l{head:g} 4l{-head:g} 4" fill="none" stroke="{BLUE}" '
        'stroke-width="1.5"/>'
    )


def drawing() -> str:
    """The SVG."""
    parts = [
        (
            f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="8" fill="{TINT}" stroke="{MUTED}" '
            'stroke-dasharray="5 4"/>'
        ),
        text(18, 26, "one machine, private network namespaces, no root", fill=MUTED, end=True),
        box(
            18,
            44,
            176,
            150,
            "client",
            ["Chromium or Firefox", "DNS clients (aioquic)", "stub resolver (quic-go)", "", "times every step"],
        ),
        box(
            282,
            44,
            196,
            150,
            "emulated access link",
            ["netem, each direction:", "delay, rate, queue,", "loss, jitter, traces", "", "checked in every round"],
        ),
        box(
            566,
            44,
            176,
            150,
            "server",
            [
                " ".join(TRANSPORTS[:3]),
                " ".join(TRANSPORTS[3:]),
                "web pages: H2, H3",
                "one set of ticket keys",
                "logs what it received",
            ],
        ),
        *(arrow(x, y, length) for x, y, length in ((198, 100, 80), (278, 130, -80), (482, 100, 80), (562, 130, -80))),
        text(
            WIDTH / 2,
            226,
            "Each round: check the link, prime ticket and token, measure every condition, check the link.",
            size=12,
        ),
        text(
            WIDTH / 2,
            250,
            "The server log confirms the condition of each exchange and load: 1-RTT, resumed, or 0-RTT.",
            size=12,
        ),
        text(
            WIDTH / 2,
            274,
            "Real time: as it runs. Virtual time: inside a guest whose clock stands still while it computes.",
            size=12,
        ),
    ]
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-labelledby="title desc" font-family="Liberation Sans, Arial, Helvetica, sans-serif">\n'
        f'<title id="title">{TITLE}</title>\n<desc id="desc">{escape(DESCRIPTION)}</desc>\n{body}\n</svg>\n'
    )


def studies() -> str:
    """Markdown: each study with its question or paper, transports, links, pages and committed campaigns."""
    rows = [
        "# Studies",
        "",
        "Transports, links and pages of the committed campaigns. `crosslayer measure -h` lists every link and page,",
        "except the links of `single-query`, which are two resolvers for each of six vantage points.",
        "In the study `resolvers`, links are vantage points and pages are names; its plan has the transports.",
        "",
        "| study | paper or question | DNS transports | links | pages | campaigns (rounds) |",
        "|---|---|---|---|---|---|",
    ]
    rows += [_row(study) for study in STUDIES.values()]
    return "\n".join(rows) + "\n"


def _row(study: Study) -> str:
    folders = [folder for folder in (CAMPAIGNS / study.name, CAMPAIGNS / f"{study.name}-virtual") if folder.is_dir()]
    plans = {folder: json.loads((folder / "campaign.json").read_text(encoding="utf-8"))["plan"] for folder in folders}
    clocks = {"wall": "real time", "virtual": "virtual time"}
    measured = ", ".join(
        f"[{folder.name}](../../data/raw/{folder.name}): {clocks[one['clock']]} ({one['rounds']})"
        for folder, one in plans.items()
    )
    links, pages = (
        list(dict.fromkeys(name for one in plans.values() for name in one[key])) for key in ("links", "pages")
    )
    about = study.paper.citation if study.paper else study.sections[-1].lead
    transports = [name for name in TRANSPORTS if name in {one for folder in folders for one in _transports(folder)}]
    cells = (f"`{study.name}`", about, *(", ".join(names) or "–" for names in (transports, links, pages)), measured)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _transports(folder: Path) -> set[str]:
    tables = ("dns_exchanges", "page_loads", "lookups", "resolved_loads", "paced_queries", "idle_recoveries")
    names: set[str] = set()
    for file in (file for table in tables for file in sorted((folder / table).rglob("*.parquet"))):
        rows = pl.scan_parquet(file)
        for column in {"protocol", "dns_protocol"} & set(rows.collect_schema()):
            names |= set(rows.select(pl.col(column).cast(pl.String)).unique().collect()[column].drop_nulls())
    return names


def plan_keys() -> str:
    """Markdown: the keys of a plan file, and the options of each study."""
    lines = [
        "# Keys of a plan file",
        "",
        "A plan is a TOML file for `crosslayer measure --plan`. If a plan does not set a key, the key has the value",
        "that the study sets for `--size quick`. If the study sets none, its value is in the column `default`.",
        "`crosslayer studies` lists links, pages and rounds of `--size quick`. Without the key `study`, the study is",
        "`coalescing`.",
        "",
        *_keys(plan.Plan, skip=("options",)),
        "",
        "The table `[options]` has further keys, which depend on the study:",
    ]
    for study in STUDIES.values():
        if keys := _keys(study.options):
            lines += ["", f"## `{study.name}`", "", *keys]
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    """A default value as in a plan file (TOML)."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_default, value))}]"
    return json.dumps(value)


def _keys(of: type, skip: tuple[str, ...] = ()) -> list[str]:
    """A table of a dataclass and those that it inherits from: name, default and what its docstring says."""
    bodies = [
        node.body
        for one in reversed(of.__mro__[:-1])
        for node in ast.parse(inspect.getsource(one)).body
        if isinstance(node, ast.ClassDef)
    ]
    defaults = {one.name: one.default for one in fields(of)}
    rows = []
    for node, after in (pair for body in bodies for pair in zip(body, [*body[1:], None], strict=True)):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.target.id in skip:
            continue
        described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        text = " ".join(str(after.value.value).split()) if described else ""
        default = f"`{_default(defaults[node.target.id])}`" if node.value else "–"
        rows.append(f"| `{node.target.id}` | {default} | {text} |")
    return ["| key | default | meaning |", "|---|---|---|", *rows] if rows else []


def blocked_paths() -> str:
    """Markdown: the findings on blocked paths, with the tables of responses and timers from the campaign."""
    text = (DOCS / "findings" / "fallback.md").read_text(encoding="utf-8")
    for name, table in (("responses", responses_table()), ("timers", timers_table())):
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def responses_table() -> str:
    """Markdown: median start of the response by case, client and link, ms."""
    dataset = Dataset.open(CAMPAIGNS / "fallback")
    links = dataset.campaign.plan["links"]
    median = pl.col("response_start_ms").filter(pl.col("error").is_null()).median()
    starts = {
        tuple(key): "no page" if ms is None else f"{ms:.1f}"
        for *key, ms in dataset.table("page_loads")
        .group_by("browser", "condition", "link")
        .agg(median)
        .collect()
        .rows()
    }
    clients = [client for client in CLIENTS if any(browser == client for browser, _, _ in starts)]
    columns = [(client, link) for client in clients for link in links]
    heads = [f"{CLIENTS[client]}: {link}" if link == links[0] else str(link) for client, link in columns]
    lines = [f"| visit | what the path does | {' | '.join(heads)} |", "|---|---|" + "---|" * len(columns)]
    section = ""
    for name, case in CASES.items():
        cells = [starts.get((client, name, link), "") for client, link in columns]
        if any(cells):
            visit = "" if case.section == section else SECTIONS[case.section]
            lines.append(f"| {visit} | {case.label} | {' | '.join(cells)} |")
            section = case.section
    return "\n".join(lines)


def timers_table() -> str:
    """Markdown: what each client waits for, from the least to the greatest delay of all rounds, by link."""
    dataset = Dataset.open(CAMPAIGNS / "fallback")
    programs = {"curl": "libcurl", "firefox-happy-eyeballs": "firefox"}
    clients = {timer.client for timer in TIMERS.values()}
    versions = {client: dataset.campaign.versions.get(programs.get(client, client), "?") for client in clients}
    links = dataset.campaign.plan["links"]
    seen = {
        tuple(key): f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"
        for *key, low, high in delays(dataset.table("attempts"))
        .group_by("series", "link")
        .agg(low=pl.col("value").min(), high=pl.col("value").max())
        .collect()
        .rows()
    }
    lines = [f"| client | what it waits between | {', ms | '.join(links)}, ms |", "|---|---|" + "---|" * len(links)]
    for name, timer in TIMERS.items():
        cells = [seen.get((name, link), "–") for link in links]
        if set(cells) != {"–"}:
            client = f"{timer.client} {versions[timer.client]}"
            lines.append(f"| {client} | {timer.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


WRITTEN = {
    "testbed.svg": drawing,
    "reference/studies.md": studies,
    "reference/plan.md": plan_keys,
    "findings/fallback.md": blocked_paths,
}
"""File below `docs`, and what writes it."""

if __name__ == "__main__":
    for name, write in WRITTEN.items():
        (DOCS / name).write_text(write(), encoding="utf-8")
