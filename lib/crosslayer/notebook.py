"""What the notebooks call, so that they hold nothing but imports, parameters and calls.

`start` opens `run_all.ipynb`: it measures, or takes a given dataset, and runs the other notebooks. `open_page` opens
each of those. Relative paths are taken from the repository's root, wherever Jupyter or papermill was started.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import polars as pl
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import Image, Markdown, clear_output, display

from crosslayer import claims, published, report
from crosslayer.campaign.dataset import Dataset
from crosslayer.errors import CrosslayerError
from crosslayer.figures import FIGURES, Drawing, Figure, Inputs, draw
from crosslayer.figures import server_cost as server_cost_figure
from crosslayer.figures.style import COLUMN_WIDTH
from crosslayer.studies import STUDIES

NOTEBOOKS = ("link_check", "handshakes", "dns_overhead", "page_loads")
QUESTIONS = {
    "question_serialisation": "serialisation",
    "question_early_data": "early-data",
    "question_key_share": "key-share",
    "single_query": "single-query",
    "authoritative": "authoritative",
    "web_performance": "web",
}
"""Notebooks with a study of their own: an open question each, or a paper."""
REFERENCE = "data/raw/coalescing"

CANNOT_MEASURE = 3
"""Exit status of `crosslayer measure` on a machine that cannot provide the testbed."""

_PROGRESS_EVERY_S = 5.0
_STOP_TIMEOUT_S = 15.0
_WIDTH_PX = {True: 520, False: 900}
_COSTS = ("cpu_s_per_10000", "rss_mb", "peak_mb", "median_response_ms", "held")


class NotebookError(CrosslayerError):
    """A notebook that cannot go on: an unknown parameter, a failed measurement or a failed notebook."""


def start(
    namespace: Mapping[str, Any],
    *,
    profile: str,
    campaign: str,
    studies: str | Sequence[str],
    figures: str,
) -> Run:
    """Begin `run_all.ipynb`.

    Parameters
    ----------
    namespace
        `globals()` of the notebook: any other plain value in it came from a misspelt parameter.
    profile
        Size of the campaign to measure: `smoke`, `quick` or `paper`.
    campaign
        A dataset folder to analyse instead of measuring; empty to measure.
    studies
        Studies to run: a list, a list in JSON as `papermill -p` passes it on, or names separated by commas.
    figures
        Folder for figures and the page that shows them.

    Raises
    ------
    NotebookError
        For an unknown parameter or study.
    """
    _quiet_errors()
    _check_parameters(namespace, profile=profile, campaign=campaign, studies=studies, figures=figures)
    wanted = _names(studies)
    for name in wanted:
        if name not in STUDIES:
            raise NotebookError(
                f"there is no study {name!r}", where="studies", next_step=f"Choose from: {', '.join(STUDIES)}."
            )
    root = find_root()
    return Run(root, profile, tuple(wanted), _existing(root, campaign) if campaign else None, root / figures)


def _names(studies: str | Sequence[str]) -> list[str]:
    if not isinstance(studies, str):
        return list(studies)
    if not studies.lstrip().startswith("["):
        return [name.strip() for name in studies.split(",")]
    try:
        return [str(name) for name in json.loads(studies)]
    except ValueError as error:
        raise NotebookError(
            f"not a list in JSON: {error}",
            where="studies",
            next_step='Write it as ["single-query","web"].',
        ) from None


def open_page(namespace: Mapping[str, Any], *, campaign: str, figures: str, notice: str) -> Page:
    """Begin one of the other notebooks: open the dataset and say on top what is analysed.

    Parameters
    ----------
    namespace
        `globals()` of the notebook.
    campaign
        Dataset folder.
    figures
        Folder for the figures.
    notice
        Shown on top where it is not empty.

    Raises
    ------
    NotebookError
        For an unknown parameter.
    DatasetError
        Where the dataset cannot be analysed.
    """
    _quiet_errors()
    _check_parameters(namespace, campaign=campaign, figures=figures, notice=notice)
    root = find_root()
    page = Page(Dataset.open(_existing(root, campaign)), root / figures)
    _show_top(page.dataset, notice)
    return page


def open_question(
    namespace: Mapping[str, Any], *, study: str, campaign: str, profile: str, figures: str, notice: str
) -> Page:
    """Begin a notebook that answers one question: measure its study, or open a dataset of it.

    Parameters
    ----------
    namespace
        `globals()` of the notebook.
    study
        What the question needs measured.
    campaign
        Dataset folder; empty to measure. Where this machine cannot, the committed campaign is opened and the page
        says so.
    profile
        Size of the campaign to measure.
    figures
        Folder for the figures.
    notice
        Shown on top where it is not empty.

    Raises
    ------
    NotebookError
        For an unknown parameter, a dataset of another study, or where measuring failed.
    DatasetError
        Where the dataset cannot be analysed.
    """
    _quiet_errors()
    _check_parameters(namespace, campaign=campaign, profile=profile, figures=figures, notice=notice)
    root = find_root()
    folder = _existing(root, campaign) if campaign else None
    if folder is None:
        folder, why_not = _measure(study, profile, root)
        if folder is None:
            folder = root / "data" / "raw" / study
            notice = f"This machine cannot measure, so the committed campaign is shown. {why_not} {notice}".strip()
    page = Page(Dataset.open(folder), root / figures)
    if page.dataset.campaign.study != study:
        raise NotebookError(
            f"is a campaign of the study {page.dataset.campaign.study}, not of {study}",
            where=str(folder),
            next_step=f"Give data/raw/{study}, or an empty campaign to measure one.",
        )
    _show_top(page.dataset, notice)
    return page


def server_cost(namespace: Mapping[str, Any], *, results: str, figures: str) -> None:
    """`server_cost.ipynb`: draw the benchmark's results, save the figure under `figures/server-cost`, show its numbers.

    Parameters
    ----------
    namespace
        `globals()` of the notebook.
    results
        What `python -m tests.benchmarks.bench_server_cost --write` has written.
    figures
        Folder for the figures.

    Raises
    ------
    NotebookError
        For an unknown parameter, or results that cannot be read.
    """
    _quiet_errors()
    _check_parameters(namespace, results=results, figures=figures)
    root = find_root()
    path = _existing(root, results)
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        queries, bind, host = whole["result"]["queries"], whole["result"]["bind"], whole["host"]["cpu"]
        day, git = str(whole["when"])[:10], str(whole["git"]["revision"])
        frame = server_cost_figure.rows(whole["result"]["transports"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotebookError(
            f"cannot be read ({type(error).__name__}: {error})",
            where=str(path),
            next_step="Measure them: python -m tests.benchmarks.bench_server_cost --write",
        ) from error
    note = (
        f"{queries:,} queries at each rate over one kept connection of the stub, on loopback; {bind}; {host}. Hollow: "
        f"rates that this machine did not hold. Measured {day}, git {git[:7]}."
    )
    chart = server_cost_figure.draw(frame, note)
    caption = "CPU time and peak memory of the server's process at a rising rate of queries, for each transport."
    paths = report.save(chart, frame, root / figures / "server-cost", "server-cost", caption=caption)
    display(Image(paths["png"].read_bytes(), width=_WIDTH_PX[False], alt=caption))  # type: ignore[no-untyped-call]
    shown = frame.select("server", transport="series", rate="rate", **{name: name for name in _COSTS})
    display(Markdown(_as_markdown(shown)))  # type: ignore[no-untyped-call]


@dataclass
class Run:
    """`run_all.ipynb`: a dataset, the notebooks on it, and the page of all figures."""

    root: Path
    profile: str
    studies: tuple[str, ...]
    """What may be measured; of the others, the committed campaigns are analysed."""
    campaign: Path | None
    """Dataset folder; None until it is measured."""
    figures: Path
    notice: str = ""

    def measure(self) -> None:
        """Measure a campaign of this profile, unless a dataset was given.

        Where this machine cannot measure, the reference campaign is analysed instead, and every page says so.

        Raises
        ------
        NotebookError
            Where measuring failed; finished rounds are safe, running again goes on from there.
        """
        if self.campaign is None and STUDIES[0] in self.studies:
            self.campaign, why_not = _measure(STUDIES[0], self.profile, self.root)
            if self.campaign is None:
                self.notice = f"This machine cannot measure, so the reference campaign is shown. {why_not}"
        elif self.campaign is None:
            self.notice = f"The study {STUDIES[0]} was not asked for, so its reference campaign is shown."
        self.campaign = self.campaign or self.root / REFERENCE
        _show_top(self._dataset, self.notice)

    def notebook(self, name: str) -> None:
        """Run one notebook by papermill and show its figures; the executed copy goes to `build/notebooks`.

        A notebook that answers a question measures its study where that is among the studies asked for, and analyses
        the committed campaign otherwise.

        Raises
        ------
        NotebookError
            For a parameter the notebook does not have, or with the error of the cell that failed.
        """
        if (study := QUESTIONS.get(name)) is None:
            self._execute(name, campaign=str(self._dataset.folder), notice=self.notice)
        elif study in self.studies:
            self._execute(name, campaign="", profile=self.profile)
        else:
            self._execute(name)

    def _execute(self, name: str, **parameters: str) -> None:
        import papermill
        from papermill.exceptions import PapermillExecutionError

        source, target = self.root / "notebooks" / f"{name}.ipynb", self.root / "build" / "notebooks" / f"{name}.ipynb"
        parameters |= {"figures": str(self.figures)}
        known = papermill.inspect_notebook(str(source))
        if unknown := sorted(set(parameters) - set(known)):
            raise NotebookError(
                f"has no parameter {', '.join(unknown)}",
                where=str(source),
                next_step="Declare it in its parameters cell.",
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            papermill.execute_notebook(
                str(source),
                str(target),
                parameters=parameters,
                cwd=str(source.parent),
                progress_bar=False,
                extra_arguments=["--log-level=ERROR"],  # else the inner kernel's warnings stand among the figures
            )
        except PapermillExecutionError as error:
            raise NotebookError(
                f"{error.ename} in cell {error.exec_count}: {error.evalue}",
                where=str(source),
                next_step=f"Open {target} to see how far it got.",
            ) from None
        for figure in FIGURES.values():
            if figure.notebook == name:
                picture = self.figures / figure.study / f"{figure.name}.png"
                _show_picture(picture.read_bytes(), figure)

    def report(self) -> None:
        """Check the claims, write `index.html` with them and every figure, and say what came out and where it is."""
        verdicts = report.check_claims(self._dataset)
        report.save_claims(verdicts, self._dataset, self.figures)
        path = report.write_index(self._dataset, self.figures, notice=self.notice)
        counts = ", ".join(f"{count} {verdict}" for verdict, count in claims.counts(verdicts).items())
        text = f"Claims: {counts}.\n\nFigures and claims on one page: `{_relative(path, self.root)}`"
        display(Markdown(text))  # type: ignore[no-untyped-call]

    @cached_property
    def _dataset(self) -> Dataset:
        if self.campaign is None:
            raise NotebookError("nothing is measured yet", where="run_all", next_step="Call run.measure() first.")
        return Dataset.open(self.campaign)


@dataclass
class Page:
    """One notebook's dataset and where its figures go."""

    dataset: Dataset
    figures: Path
    _drawn: dict[str, Drawing] = field(default_factory=dict)

    @cached_property
    def _inputs(self) -> Inputs:
        return Inputs.of(self.dataset, published.load())

    def show(self, name: str) -> None:
        """Draw a figure, save it as SVG, PNG, Vega-Lite JSON and CSV, and show it with its caption."""
        drawing = self._drawing(name)
        paths = report.save_drawing(drawing, self.dataset, self.figures)
        _show_picture(paths["png"].read_bytes(), drawing.figure)

    def table(self, name: str) -> None:
        """Show a figure's numbers: ours, their 95 % interval, and the published ones beside them."""
        drawing = self._drawing(name)
        if drawing.figure.table is None:
            raise NotebookError("has no table", where=name, next_step="Show the figure; its CSV has every number.")
        display(Markdown(_as_markdown(drawing.figure.table(drawing.frame))))  # type: ignore[no-untyped-call]

    def verdict(self, name: str) -> None:
        """Answer the question of a figure's study, in a sentence computed from its numbers."""
        drawing = self._drawing(name)
        if drawing.figure.verdict is None:
            raise NotebookError("answers no question", where=name)
        display(Markdown(f"**Verdict.** {drawing.figure.verdict(drawing.frame)}"))  # type: ignore[no-untyped-call]

    def claims(self) -> None:
        """Show what became of the paper's results: those that this dataset measures, and how many of each verdict."""
        verdicts = report.check_claims(self.dataset)
        measured = verdicts.filter(pl.col("verdict") != claims.Verdict.NOT_MEASURED)
        columns = ["claim_id", "quantity", "scope", "published", "ours", "low", "high", "unit", "verdict", "why"]
        counts = ", ".join(f"{count} {verdict}" for verdict, count in claims.counts(verdicts).items())
        display(Markdown(f"{_as_markdown(measured.select(columns))}\n\n{counts}."))  # type: ignore[no-untyped-call]

    def _drawing(self, name: str) -> Drawing:
        if name not in FIGURES:
            raise NotebookError(f"there is no figure {name!r}", next_step=f"Figures are: {', '.join(FIGURES)}.")
        if name not in self._drawn:
            self._drawn[name] = draw(FIGURES[name], self._inputs, self.dataset.caption)
        return self._drawn[name]


def find_root() -> Path:
    """The repository: the working folder or one above it, else where this package is checked out.

    Raises
    ------
    NotebookError
        Where neither is a checkout.
    """
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).parents[2]):
        if (folder / "notebooks" / "run_all.ipynb").is_file():
            return folder
    raise NotebookError(
        "not in a checkout of crosslayer", where=str(here), next_step="Start Jupyter or papermill inside the checkout."
    )


def _existing(root: Path, path: str) -> Path:
    """A path given by the user: from the root, or else from the working folder."""
    return root / path if (root / path).exists() else Path(path).absolute()


def _relative(path: Path, root: Path) -> Path:
    return path.relative_to(root) if path.is_relative_to(root) else path


def _check_parameters(namespace: Mapping[str, Any], **declared: Any) -> None:
    """Papermill only warns about a parameter that a notebook does not have; here it is an error."""
    shell = InteractiveShell.instance() if InteractiveShell.initialized() else None
    hidden = set(shell.user_ns_hidden) if shell else set()
    no_parameter = (types.ModuleType, types.FunctionType, type, Run, Page)
    unknown = [
        name
        for name, value in namespace.items()
        if not name.startswith("_") and name not in hidden | set(declared) and not isinstance(value, no_parameter)
    ]
    if unknown:
        raise NotebookError(
            f"unknown parameter {', '.join(sorted(unknown))}",
            where="parameters",
            next_step=f"Parameters are: {', '.join(declared)}.",
        )


def _quiet_errors() -> None:
    """Show foreseeable faults as their message: the traceback would only be about crosslayer itself."""
    if not InteractiveShell.initialized():
        return
    shell = InteractiveShell.instance()

    def handler(self: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: Any = None) -> None:
        self._showtraceback(kind, error, [f"{kind.__name__}: {error}"])

    shell.set_custom_exc((CrosslayerError,), handler)  # type: ignore[no-untyped-call]


def _measure(study: str, profile: str, root: Path) -> tuple[Path | None, str]:
    """Dataset folder, or None and why this machine cannot measure."""
    folder = root / "data" / "raw" / f"{study}-{profile}"
    if sys.platform != "linux":
        return None, "Measuring needs Linux."
    command = [sys.executable, "-m", "crosslayer", "measure"]
    options = ["--study", study, "--size", profile, "--out", str(folder)]
    progress = _Progress()
    with subprocess.Popen(
        [*command, *options],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_die_with_parent(),
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        reader = threading.Thread(target=progress.follow, args=(child.stderr,), daemon=True)
        reader.start()
        try:
            output = child.stdout.read().decode(errors="replace")
            status = child.wait()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
            raise
        reader.join()
    progress.close()
    if status == CANNOT_MEASURE:
        return None, progress.last_line
    if status != 0:
        raise NotebookError(
            progress.last_line or f"crosslayer measure ended with status {status}",
            where=f"crosslayer measure {' '.join(options)}",
            next_step="Finished rounds are safe: mend the fault and run again, it goes on from there.",
        )
    return Path(output.strip().splitlines()[-1]), ""


def _die_with_parent() -> Callable[[], None]:
    """For the child to run: a kernel that is killed takes its measurement with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    set_death_signal, parent = 1, os.getpid()

    def before_exec() -> None:
        libc.prctl(set_death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return before_exec


class _Progress:
    """Shows what a measurement says: lines stay, a progress bar (lines that end in a carriage return) is replaced."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._shown_at = 0.0

    @property
    def last_line(self) -> str:
        return self.lines[-1] if self.lines else ""

    def follow(self, stream: IO[bytes]) -> None:
        """Read until the other end closes."""
        pending = b""
        while chunk := os.read(stream.fileno(), 65536):
            *parts, pending = (pending + chunk).replace(b"\n", b"\n\0").replace(b"\r", b"\r\0").split(b"\0")
            for part in parts:
                self._take(part.decode(errors="replace"))
        if pending:
            self._take(pending.decode(errors="replace") + "\n")

    def _take(self, part: str) -> None:
        text = part.strip()
        if not text:
            return
        if part.endswith("\n"):
            self.lines.append(text)
            self._show(text)
        elif time.monotonic() - self._shown_at >= _PROGRESS_EVERY_S:
            self._show(text)

    def _show(self, status: str) -> None:
        self._shown_at = time.monotonic()
        clear_output(wait=True)  # type: ignore[no-untyped-call]
        print(status, flush=True)

    def close(self) -> None:
        """Leave the lines that stay."""
        clear_output(wait=True)  # type: ignore[no-untyped-call]
        print("\n".join(self.lines), flush=True)


def _show_top(dataset: Dataset, notice: str) -> None:
    """What is analysed, with the notice above it."""
    plan = dataset.campaign
    lines = [f"> **Note.** {notice}", ""] if notice else []
    lines.append(
        f"{dataset.caption} Links: {', '.join(plan.links)}. Pages: {', '.join(plan.pages)}. Measured {plan.started} to "
        f"{plan.ended or 'now: not finished'}."
    )
    display(Markdown("\n".join(lines)))  # type: ignore[no-untyped-call]


def _show_picture(png: bytes, figure: Figure) -> None:
    """The picture, which has its notes and provenance in it, and its caption."""
    width = _WIDTH_PX[figure.width == COLUMN_WIDTH]
    caption = Markdown(f"**{figure.heading}.** {figure.caption}")  # type: ignore[no-untyped-call]
    display(Image(png, width=width, alt=figure.heading), caption)  # type: ignore[no-untyped-call]


def _as_markdown(table: pl.DataFrame) -> str:
    """A Markdown table; numbers with four significant digits, `–` where there is none."""

    def cell(value: Any) -> str:
        if value is None:
            return "–"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    right = {name for name, kind in table.schema.items() if kind.is_numeric()}
    head = " | ".join(name.replace("_", " ") for name in table.columns)
    rule = " | ".join("---:" if name in right else "---" for name in table.columns)
    body = [" | ".join(cell(value) for value in row) for row in table.iter_rows()]
    return "\n".join(f"| {line} |" for line in (head, rule, *body))
