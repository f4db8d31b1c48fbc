"""Recipes of CONTRIBUTING.md that need a measurement, each followed on a copy of the tree, in virtual time.

The steps of a recipe name files; a test changes exactly these files.
"""

from __future__ import annotations

import csv
import shutil
import sys
from pathlib import Path

import polars as pl
import pytest

from tree_copy import ROOT, Tree, files_of_recipe

TOY = ROOT / "tests" / "toy"

pytestmark = pytest.mark.skipif(not (ROOT / "CONTRIBUTING.md").is_file(), reason="the tests are not in a checkout")


def add_toy(tree: Tree) -> None:
    """Follow the recipe "A study" with the study `toy`."""
    shutil.copytree(TOY, tree.folder / "lib" / "crosslayer" / "studies" / "toy")
    tree.edit("lib/crosslayer/studies/__init__.py", '    "web",\n', '    "web",\n    "toy",\n')
    shutil.copy(tree.folder / "notebooks/question_key_share.ipynb", tree.folder / "notebooks/question_toy.ipynb")


@pytest.fixture
def tree(testbed_machine: None, tmp_path: Path) -> Tree:
    return Tree(tmp_path / "tree")


@pytest.fixture
def with_toy(tree: Tree) -> Tree:
    """A copy of the tree that contains the study `toy`."""
    add_toy(tree)
    tree.commit()
    return tree


def measured(tree: Tree, clock: list[str], *options: str) -> Path:
    """Measure a round; returns the folder of the dataset."""
    dataset = tree.folder / "data" / "local" / "measured"
    tree.run("-m", "crosslayer", "measure", "--rounds", "1", *options, *clock, "--out", str(dataset))
    return dataset


def rows(dataset: Path, table: str) -> pl.DataFrame:
    return pl.read_parquet(dataset / table / "**" / "*.parquet")


def document_columns(tree: Tree) -> None:
    tree.write("docs/reference/columns.md", tree.run("-m", "crosslayer.campaign.tables"))


def test_the_toy_has_at_most_100_lines() -> None:
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in TOY.glob("*.py")) <= 100


def test_a_study(tree: Tree, virtual_clock: list[str]) -> None:
    add_toy(tree)
    folder = "lib/crosslayer/studies/toy/"
    changed = {folder if name.startswith(folder) else name for name in tree.changed()}
    assert changed == files_of_recipe("A study", NAME="toy")
    assert len(changed) <= 3

    dataset = tree.folder / "data" / "raw" / "toy"
    tree.run("-m", "crosslayer", "measure", "--study", "toy", "--size", "quick", *virtual_clock, "--out", str(dataset))
    exchanges = rows(dataset, "dns_exchanges")
    assert exchanges.height == 8
    assert exchanges["study"].unique().to_list() == ["toy"]
    assert exchanges["error"].null_count() == 8
    assert exchanges["total_ms"].median() == pytest.approx(14.77, abs=0.5)  # the RTT of fiber

    tree.run("-m", "crosslayer", "report", "data/raw/toy", "--out", "out")
    assert (tree.folder / "out" / "toy" / "toy-exchange.svg").is_file()
    verdicts = pl.read_parquet(tree.folder / "out" / "toy" / "claims.parquet").filter(claim_id="TOY1")
    assert verdicts["verdict"].to_list() == ["reproduced"]
    for page, part in (
        ("index.html", "How long does it take?"),
        ("toy/index.html", 'id="toy-exchange"'),
        ("claims.html", 'id="TOY1"'),
        ("claims.html", "A toy takes one round-trip"),
    ):
        assert part in (tree.folder / "out" / page).read_text(encoding="utf-8"), page
    assert "toy" in tree.run("-m", "crosslayer", "measure", "--help")


TABLE = '''class Connects(_OfStudy, table="connects"):
    """A TCP connect of the toy."""

    page = Column(str, "page of the cell", required=True, key=True)
    position = _POSITION
    started_s = _STARTED
    connect_ms = Column(float, "time from sending the SYN to the arrival of the SYN-ACK", success=True)
    error = _ERROR


'''
CONNECT = """from dataclasses import dataclass

from crosslayer.campaign.conditions import TcpConnect, measuring


@dataclass(frozen=True, slots=True)
class Connect(TcpConnect):
    table = "connects"

    def observe(self, tool, page, row):
        taken = tool.tcp_rtt(page.host)
        return {"connects": [row | {"started_s": taken["started_s"], "connect_ms": taken["rtt_ms"]}]}


MEASURER = measuring({"connect": Connect()})
"""


def test_a_table(with_toy: Tree, virtual_clock: list[str]) -> None:
    tree = with_toy
    tree.edit("lib/crosslayer/campaign/tables.py", "class PageLoads(", TABLE + "class PageLoads(")
    tree.write("lib/crosslayer/studies/toy/measure.py", CONNECT)
    inputs = "lib/crosslayer/figures/inputs.py"
    tree.edit(
        inputs,
        "    idle_recoveries: pl.Lazy",
        "    connects_of_toy: pl.LazyFrame = field(default_factory=pl.LazyFrame)\n    idle_recoveries: pl.Lazy",
    )
    tree.edit(
        inputs,
        'attempts=dataset.table("attempts"),',
        'attempts=dataset.table("attempts"), connects_of_toy=dataset.table("connects"),',
    )
    figures = "lib/crosslayer/studies/toy/figures.py"
    tree.edit(figures, 'inputs.exchanges, "total_ms"', 'inputs.connects_of_toy, "connect_ms"')
    document_columns(tree)
    assert tree.changed() == files_of_recipe("A table", NAME="toy")
    assert len(tree.changed()) <= 5

    dataset = measured(tree, virtual_clock, "--study", "toy")
    assert rows(dataset, "connects")["connect_ms"].item() == pytest.approx(14.77, abs=0.5)
    tree.run("-m", "crosslayer", "figures", str(dataset), "--out", "out")
    drawn = pl.read_csv(tree.folder / "out" / "toy" / "toy-exchange.csv")
    assert drawn["median"].item() == pytest.approx(14.77, abs=0.5)


def test_a_transport(with_toy: Tree, virtual_clock: list[str]) -> None:
    """The new transport is DNS over TCP on another port."""
    tree = with_toy
    vocabulary, exchange = "lib/crosslayer/vocabulary.py", "lib/crosslayer/dns/exchange.py"
    properties = "port=8853, resumptions=(Resumption.NONE,), encrypted=False, round_trips=2"
    row = f'    Protocol.DOX: Transport({properties}, url_scheme="dox", connection_packets=8),\n'
    tree.edit(vocabulary, '    DOQ = "DoQ"\n', '    DOQ = "DoQ"\n    DOX = "DoX"\n')
    tree.edit(vocabulary, "_TRANSPORTS = {\n", f"_TRANSPORTS = {{\n{row}")
    tree.write(
        "lib/crosslayer/dns/dox.py",
        "from crosslayer.dns.model import Protocol\nfrom crosslayer.dns.tcp import DoTcpClient\n\n\n"
        "class DoXClient(DoTcpClient):\n    protocol = Protocol.DOX\n",
    )
    tree.edit(exchange, ", DoQClient\n", ", DoQClient\nfrom crosslayer.dns.dox import DoXClient\n")
    tree.edit(exchange, "DoH3Client, DoQClient)", "DoH3Client, DoQClient, DoXClient)")
    style = '    "DoQ": Style(BLUE, "circle", SOLID),\n'
    tree.edit("lib/crosslayer/figures/style.py", style, style + '    "DoX": Style(SKY, "square", SOLID),\n')
    tree.edit("lib/crosslayer/testbed/server.py", '"{addresses} {{"', '"{addresses} .:8853 {{"')
    assert tree.changed() == files_of_recipe("A transport", NAME="dox")
    assert len(tree.changed()) <= 5

    tree.edit("lib/crosslayer/studies/toy/measure.py", "Exchange(Protocol.DOUDP)", "Exchange(Protocol.DOX)")
    exchanges = rows(measured(tree, virtual_clock, "--study", "toy"), "dns_exchanges")
    assert exchanges.select("protocol", "error").rows() == [("DoX", None)]
    assert exchanges["total_ms"].item() == pytest.approx(2 * 14.77, abs=1)


def test_a_browser(browser_machine: None, tree: Tree, virtual_clock: list[str]) -> None:
    """The new browser is Chromium under another name."""
    vocabulary, classes = "lib/crosslayer/vocabulary.py", "lib/crosslayer/browser/__init__.py"
    tree.edit(vocabulary, '    FIREFOX = "firefox"\n', '    FIREFOX = "firefox"\n    LEAN = "lean"\n')
    row = (
        '    Browser.LEAN.value: BrowserProgram("Lean", "CROSSLAYER_CHROMIUM", ("chromium",), driver="chromedriver"),\n'
    )
    tree.edit(
        vocabulary, "BROWSERS: dict[str, BrowserProgram] = {\n", f"BROWSERS: dict[str, BrowserProgram] = {{\n{row}"
    )
    tree.write(
        "lib/crosslayer/browser/lean.py",
        "from crosslayer.browser.chromium import Chromium\n\n\nclass Lean(Chromium):\n    title = 'Lean'\n",
    )
    tree.edit(classes, "import Firefox\n", "import Firefox\nfrom crosslayer.browser.lean import Lean\n")
    tree.edit(classes, '"firefox": Firefox}', '"firefox": Firefox, "lean": Lean}')
    study = "lib/crosslayer/studies/coalescing/__init__.py"
    tree.edit(study, "(Browser.CHROMIUM, Browser.FIREFOX)", "(Browser.CHROMIUM, Browser.FIREFOX, Browser.LEAN)")
    assert tree.changed() == files_of_recipe("A browser", NAME="lean", STUDY="coalescing")
    assert len(tree.changed()) <= 4

    dataset = measured(tree, virtual_clock, "--links", "fiber", "--pages", "example.org", "--browser", "lean")
    loads = rows(dataset, "page_loads").filter(role="measured")
    assert loads.select("browser", "error").unique().rows() == [("lean", None)]
    assert loads.filter(h3="0-rtt", early_data_accepted=True).height > 0


def test_a_link_effect(with_toy: Tree, virtual_clock: list[str]) -> None:
    """The new effect is netem's corruption: the receiver drops a packet with a wrong bit."""
    tree = with_toy
    links, effects = "lib/crosslayer/links.py", "lib/crosslayer/testbed/effects.py"
    tree.edit(
        links,
        "    reorder_percent: float = 0.0\n",
        "    reorder_percent: float = 0.0\n    corrupt_percent: float = 0.0\n",
    )
    tree.edit(
        links,
        "        if self.reorder_percent:\n            arguments",
        '        if self.corrupt_percent:\n            arguments += ["corrupt", f"{self.corrupt_percent}%"]\n'
        "        if self.reorder_percent:\n            arguments",
    )
    tree.edit(
        links,
        "    reorder_percent: Percent = 0.0\n",
        "    reorder_percent: Percent = 0.0\n    corrupt_percent: Percent = 0.0\n",
    )
    tree.edit(
        links,
        "            reorder_percent=self.reorder_percent,\n",
        "            reorder_percent=self.reorder_percent,\n            corrupt_percent=self.corrupt_percent,\n",
    )
    tree.edit(links, "1 - self.loss_percent / 100", "(1 - self.loss_percent / 100) * (1 - self.corrupt_percent / 100)")
    tree.edit(
        effects,
        "    lost_down: int | None = None\n",
        "    corrupted_up: int | None = None\n    lost_down: int | None = None\n",
    )
    tree.edit(
        effects,
        "    if profile.jitter_ms:\n        crossing",
        "    if profile.corrupt_percent:\n"
        "        crossing = prober.crossing(profile.rtt_ms, 1000, interval_s)\n"
        '        measured["corrupted_up"] = corrupted = crossing.sent - len(crossing.up_ms)\n'
        "        if not 0.5 < corrupted / (crossing.sent * profile.corrupt_percent / 100) < 2:\n"
        '            faults.append(f"uplink corrupts {corrupted} of {crossing.sent} packets")\n'
        "    if profile.jitter_ms:\n        crossing",
    )
    column = '    corrupted_up = Column(int, "probes that a wrong bit made unreadable, client to server", CHECK)\n'
    tree.edit("lib/crosslayer/campaign/tables.py", "    lost_down = Column(", f"{column}    lost_down = Column(")
    document_columns(tree)
    assert tree.changed() == files_of_recipe("A link effect")
    assert len(tree.changed()) <= 4

    tree.write("mine.toml", "[noisy]\nrtt_ms = 20\ncorrupt_percent = 5\n")
    [check, *_] = rows(
        measured(tree, virtual_clock, "--study", "toy", "--links", "mine.toml"), "link_checks"
    ).iter_rows(named=True)
    assert check["verdict"] == "pass"
    assert 25 < check["corrupted_up"] < 100
    tree.edit(links, '["corrupt", f"{self.corrupt_percent}%"]', "[]")
    print_nothing = ("link", "--links", "mine.toml", "noisy", "--no-server", *virtual_clock[:2], "--", "true")
    assert "uplink corrupts 0 of 1000 packets" in tree.run("-m", "crosslayer", *print_nothing, errors=True)


SERVER = """#!{python}
import socket, sys

if sys.argv[1:] == ["-V"]:
    sys.exit("minidns 1.0")
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.bind(("0.0.0.0", 53))
while True:
    query, client = end.recvfrom(4096)
    name_end = query.index(0, 12) + 5
    record = bytes.fromhex("c00c00010001000000010004") + socket.inet_aton(sys.argv[1])
    end.sendto(query[:2] + bytes.fromhex("818000010001") + bytes(4) + query[12:name_end] + record, client)
"""


def test_a_far_end_server(
    tree: Tree, virtual_clock: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new server is a resolver of 14 lines that answers over UDP."""
    emulated = "lib/crosslayer/discover/emulated.py"
    row = '    "minidns": _Resource("CROSSLAYER_MINIDNS", "", "minidns", _PACKAGE.format("minidns")),\n'
    tree.edit("lib/crosslayer/resources.py", "RESOURCES: Final = {\n", f"RESOURCES: Final = {{\n{row}")
    one = 'Implementation("minidns", "minidns", frozenset({("udp", 53)}), lambda *_: [ADDRESS])'
    tree.edit(
        emulated,
        "IMPLEMENTATIONS: tuple[Implementation, ...] = (\n",
        f"IMPLEMENTATIONS: tuple[Implementation, ...] = (\n    {one},\n",
    )
    tree.edit("lib/crosslayer/discover/servers.py", '"bind9")\n', '"bind9", "minidns")\n')
    assert tree.changed() == files_of_recipe("A far-end server")
    assert len(tree.changed()) <= 3

    program = tmp_path / "bin" / "minidns"
    program.parent.mkdir()
    program.write_text(SERVER.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("CROSSLAYER_MINIDNS", str(program))
    tree.run(
        "-m",
        "crosslayer",
        "servers",
        "minidns",
        "--link",
        "fiber",
        "--rounds",
        "1",
        *virtual_clock[:2],
        "--out",
        "out",
        keep=("CROSSLAYER_MINIDNS",),
    )
    with (tree.folder / "out" / "servers.csv").open(encoding="utf-8", newline="") as lines:
        cells = {(row["check"], row["transport"]): row for row in csv.DictReader(lines)}
    assert float(cells["answer", "DoUDP"]["value"]) == pytest.approx(1, abs=0.1)
    assert cells["answer", "DoUDP"]["version"] == "1.0"
    assert cells["answer", "DoTCP"]["value"] == ""
