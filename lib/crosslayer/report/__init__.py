"""Figures as files, and one page that shows them all.

`save` writes a figure as SVG, PNG, Vega-Lite JSON and CSV; `write_index` gathers the figures of a campaign from such
files into `index.html`, which needs no network: charts, their library and the pictures are inside.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from crosslayer import published
from crosslayer.campaign.dataset import Dataset
from crosslayer.errors import CrosslayerError
from crosslayer.figures import FIGURES, Drawing, Inputs, draw
from crosslayer.figures.style import COLUMN_WIDTH

PNG_SCALE = 2.0

SECTIONS = {
    "link_check": (
        "The testbed",
        "Is the link what it claims to be, does the procedure measure what it should, and what failed?",
    ),
    "handshakes": (
        "Handshakes",
        "How long DoQ and HTTP/3 take to set up a connection, and when the first request can leave.",
    ),
    "dns_overhead": (
        "DNS exchanges",
        "What a lookup costs on each transport, in round-trips of the link and beyond them.",
    ),
    "page_loads": (
        "Page loads",
        "What the transport of DNS and the HTTP/3 handshake cost a page load together.",
    ),
}
"""Notebook to heading and lead of its part of the page."""

_KEY = "crosslayer"


class ReportError(CrosslayerError):
    """Figures that cannot be written or shown."""


def save(chart: alt.VConcatChart, frame: pl.DataFrame, folder: Path, name: str, **about: str) -> dict[str, Path]:
    """Write a figure as SVG, PNG (two pixels per CSS pixel), Vega-Lite JSON, and the CSV it draws.

    Parameters
    ----------
    chart, frame
        The figure and its rows.
    folder
        Made where it is missing.
    name
        File name without ending.
    about
        Kept in the JSON under `usermeta.crosslayer`: campaign, caption.

    Returns
    -------
    dict
        Path by ending: `svg`, `png`, `json`, `csv`.

    Raises
    ------
    ReportError
        Where the folder cannot be written.
    """
    spec = chart.to_dict(validate=False)  # the tests validate every figure; here it would take longer than drawing
    spec["usermeta"] = {_KEY: {"name": name} | about}
    text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
    version = _vegalite_version()
    content = {
        "svg": vl_convert.vegalite_to_svg(text, vl_version=version).encode(),
        "png": vl_convert.vegalite_to_png(text, vl_version=version, scale=PNG_SCALE),
        "json": text.encode(),
        "csv": frame.write_csv().encode(),
    }
    paths = {ending: folder / f"{name}.{ending}" for ending in content}
    for ending, path in paths.items():
        _write(path, content[ending])
    return paths


def save_drawing(drawing: Drawing, dataset: Dataset, folder: Path) -> dict[str, Path]:
    """`save` a drawn figure in the folder of its study, e.g. `figures/coalescing/`."""
    return save(
        drawing.chart,
        drawing.frame,
        folder / drawing.figure.study,
        drawing.figure.name,
        campaign=dataset.campaign.campaign,
        caption=drawing.caption,
    )


def write_figures(dataset: Dataset, folder: Path, *, notice: str = "") -> Path:
    """Draw and save every figure of a dataset's study, then the page that shows them.

    Parameters
    ----------
    dataset
        What to draw.
    folder
        E.g. `figures`; the figures go to a folder of their study in it.
    notice
        Printed on top of the page.

    Returns
    -------
    Path
        `folder/index.html`.
    """
    inputs = Inputs.of(dataset, published.load())
    for figure in FIGURES.values():
        if figure.study == dataset.campaign.study:
            save_drawing(draw(figure, inputs, dataset.caption), dataset, folder)
    return write_index(dataset, folder, notice=notice)


def write_index(dataset: Dataset, folder: Path, *, notice: str = "") -> Path:
    """Write `folder/index.html` from the figures saved in the folder that are of this dataset.

    Raises
    ------
    ReportError
        Where there is none, or the page cannot be written.
    """
    campaign = dataset.campaign.campaign
    shown = [(figure, spec) for figure, spec in _saved(folder) if spec["usermeta"][_KEY]["campaign"] == campaign]
    if not shown:
        raise ReportError(
            f"there are no figures of campaign {campaign}",
            where=str(folder),
            next_step="Draw them first: run the notebooks, or `crosslayer figures`.",
        )
    sections = []
    for notebook, (heading, lead) in SECTIONS.items():
        cards = [_card(folder, name) for name, _ in shown if FIGURES[name].notebook == notebook]
        if cards:
            sections.append(
                f'<section id="{notebook}"><h2>{escape(heading)}</h2><p class="lead">{escape(lead)}</p>'
                f"{''.join(cards)}</section>"
            )
    assets = resources.files(__package__)
    page = Template(assets.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=f"crosslayer: study {escape(dataset.campaign.study)}",
        style=assets.joinpath("page.css").read_text(encoding="utf-8"),
        notice=f'<p class="notice" role="note">{escape(notice)}</p>' if notice else "",
        study=escape(dataset.campaign.study),
        caption=escape(dataset.caption),
        navigation=_navigation([name for name, _ in shown]),
        sections="".join(sections),
        provenance=_provenance(dataset),
        specs=_as_script(dict(shown)),
        script=vl_convert.javascript_bundle(
            assets.joinpath("page.js").read_text(encoding="utf-8"), vl_version=_vegalite_version()
        ),
    )
    path = folder / "index.html"
    _write(path, page.encode())
    return path


def _saved(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, figure in FIGURES.items():
        path = folder / figure.study / f"{name}.json"
        if path.is_file():
            try:
                found.append((name, json.loads(path.read_text(encoding="utf-8"))))
            except (OSError, ValueError) as error:
                raise ReportError(
                    f"cannot be read ({error})", where=str(path), next_step="Draw the figure again."
                ) from error
    return found


def _card(folder: Path, name: str) -> str:
    figure = FIGURES[name]
    picture = base64.b64encode((folder / figure.study / f"{name}.svg").read_bytes()).decode()
    kind = "column" if figure.width == COLUMN_WIDTH else "wide"
    heading = escape(figure.heading)
    # The picture has its title, what its marks mean and the provenance in it, so that it can stand alone.
    return (
        f'<figure id="{name}" class="{kind}"><div class="plot"><div class="chart" data-name="{name}">'
        f'<img alt="{heading}" src="data:image/svg+xml;base64,{picture}"></div></div>'
        f'<figcaption><h3 class="heard">{heading}</h3><p>{escape(figure.caption)}</p>'
        f'<p class="get"><button data-csv="{name}">CSV</button> <button data-json="{name}">Vega-Lite</button></p>'
        "</figcaption></figure>"
    )


def _navigation(names: Sequence[str]) -> str:
    parts = []
    for notebook, (heading, _) in SECTIONS.items():
        links = "".join(
            f'<li><a href="#{name}">{escape(FIGURES[name].paper_figure or FIGURES[name].title)}</a></li>'
            for name in names
            if FIGURES[name].notebook == notebook
        )
        if links:
            parts.append(f'<li><a href="#{notebook}">{escape(heading)}</a><ul>{links}</ul></li>')
    return "".join(parts)


def _provenance(dataset: Dataset) -> str:
    campaign = dataset.campaign
    fewest, most = dataset.rounds_per_cell
    host = campaign.host
    clean = {True: " (clean)", False: " (with uncommitted changes)", None: ""}[campaign.git_clean]
    facts = {
        "Campaign": campaign.campaign,
        "Measured": f"{campaign.started} to {campaign.ended or 'not finished'}",
        "Links": ", ".join(campaign.links),
        "Pages": ", ".join(campaign.pages),
        "Rounds per cell": f"{most if fewest == most else f'{fewest} to {most}'} of {campaign.rounds} planned",
        "Seed": str(campaign.seed),
        "Link emulated by": campaign.backend,
        "Host": f"{host.cpu}, {host.cores} cores, {host.memory_bytes / 2**30:.1f} GiB, {host.os}, Linux {host.kernel}",
        "Git revision": f"{campaign.git_revision or 'unknown'}{clean}",
        "Versions": ", ".join(f"{name} {version}" for name, version in sorted(campaign.versions.items())),
        "Notes": "; ".join(campaign.notes) or "none",
    }
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return f"<table>{rows}</table>"


def _as_script(value: object) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")


def _vegalite_version() -> str:
    """Vega-Lite version the charts are made for, e.g. 6.4."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def _write(path: Path, content: bytes) -> None:
    """Write beside and put in place, so that a reader never sees half a file."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(content)
        fresh.replace(path)
    except OSError as error:
        raise ReportError(
            f"cannot be written ({error.strerror})",
            where=str(path),
            next_step="Make room or the folder writable, or choose another.",
        ) from error
