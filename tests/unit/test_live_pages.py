"""Live pages: the file of pages, and what a call would send, checked before anything is sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import Plan
from crosslayer.cli import cli
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.ledger import QueryLedger
from crosslayer.studies import sized
from crosslayer.studies.web import WebOptions
from crosslayer.studies.web.live_pages import LivePages, consent, live_pages
from crosslayer.studies.web.sites import read_sites
from crosslayer.testbed import outside

RESOLVERS = """
[[resolver]]
name = "one"
operator = "both"
address = ["203.0.113.1", "2001:db8::1"]
host = "one.example"
transports = { doq = 853, doudp = 53 }
[[resolver]]
name = "two"
operator = "both"
address = ["203.0.113.2"]
transports = { doudp = 53 }
"""


def file_of(folder: Path, text: str, name: str = "sites.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def call(folder: Path, plan: Plan | None = None, *, sites: str = "https://www.shop.example/") -> LivePages:
    resolvers = file_of(folder, RESOLVERS, "resolvers.toml")
    return live_pages(plan or sized("web", "smoke"), file_of(folder, sites), [str(resolvers)], None)


def test_a_url_a_line_with_comments(tmp_path: Path) -> None:
    text = "# mine\n\nhttps://WWW.Shop.example\nhttp://www.shop.example:8080/a?b=c#d   # the old one\n"
    first, second = read_sites(file_of(tmp_path, text))
    assert (first.url, first.host, first.name) == ("https://www.shop.example/", "www.shop.example", "www.shop.example")
    assert (second.url, second.name) == ("http://www.shop.example:8080/a?b=c", "http://www.shop.example:8080/a?b=c")


@pytest.mark.parametrize(
    ("text", "what", "next_step"),
    [
        ("", "names no page", "Write a URL in each line."),
        ("# only this\n", "names no page", "Write a URL in each line."),
        ("www.shop.example\n", "is no URL of http or https: 'www.shop.example'", "https://www.example.org/"),
        ("ftp://www.shop.example/\n", "is no URL of http or https", "https://www.example.org/"),
        ("https://me:secret@www.shop.example/\n", "has credentials", "Leave them out."),
        ("https://192.0.2.1/\n", "names the address 192.0.2.1, which needs no lookup", "Write the name of the server."),
        ("https://[2001:db8::1]/\n", "names the address 2001:db8::1", "Write the name of the server."),
        ("https://3221225985/\n", "names the address 3221225985", "Write the name of the server."),
        ("https://localhost/\n", "names localhost, which needs no lookup", "Write the name of a server."),
        ("https:///path\n", "has no host name in ASCII", "xn--"),
        ("https://münchen.example/\n", "has no host name in ASCII", "xn--"),
        ("https://www.shop.example/ü\n", "has a character that no URL has", "Encode it with %."),
        ("https://www.shop.example:99999/\n", "is no URL", "address bar"),
        ("https://a.example\n\nhttps://a.example:443/\n", "names a.example again, after line 1", "once"),
    ],
)
def test_an_invalid_file_is_an_error_with_line_and_next_step(
    tmp_path: Path, text: str, what: str, next_step: str
) -> None:
    path = file_of(tmp_path, text)
    with pytest.raises(CampaignError) as caught:
        read_sites(path)
    assert what in caught.value.what
    assert next_step in caught.value.next_step
    assert str(path) in caught.value.where
    if text.strip() and not text.startswith("#"):
        assert f"line {len(text.splitlines())}" in caught.value.where


def test_credentials_are_not_printed(tmp_path: Path) -> None:
    with pytest.raises(CampaignError) as caught:
        read_sites(file_of(tmp_path, "https://me:secret@www.shop.example/"))
    assert "secret" not in str(caught.value)


def test_a_site_of_the_stop_list_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "crosslayer").mkdir()
    file_of(tmp_path / "crosslayer", '[[stop]]\nreason = "asked us"\noperators = ["shop.example"]\n', "stop_list.toml")
    with pytest.raises(CampaignError, match="is on the stop list \\(asked us\\)"):
        read_sites(file_of(tmp_path, "https://www.shop.example/"))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="cannot be read"):
        read_sites(tmp_path / "missing.txt")


def test_every_transport_of_the_first_address_of_a_resolver(tmp_path: Path) -> None:
    live = call(tmp_path)
    assert list(live.targets) == ["one DoUDP", "one DoQ", "two DoUDP"]
    assert live.addresses == ["203.0.113.1", "203.0.113.2"]
    assert live.plan.pages == ("www.shop.example",)
    assert live.plan.options.live_resolvers == ("one 203.0.113.1", "two 203.0.113.2")


def test_the_budget_names_pages_operators_queries_and_time(tmp_path: Path) -> None:
    text = call(tmp_path, sites="https://a.example/\nhttps://b.example/\n").budget
    assert "2 pages in 3 rounds over 3 targets: 18 measured loads" in text
    assert "  https://b.example/" in text.splitlines()
    assert "about 108 queries" in text
    assert [line.split()[:2] for line in text.splitlines() if line.startswith("both")] == [["both", "108"]]
    assert "at most 1 query/s, and 5000 a day. It takes at least 2 minutes." in text


def test_two_resolvers_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="two of the name"):
        live_pages(
            sized("web", "smoke"),
            file_of(tmp_path, "https://a.example/"),
            ["tls://192.0.2.1#a.example", "tls://192.0.2.1:8853#a.example"],
            None,
        )


@pytest.mark.parametrize(
    "plan",
    [
        replace(sized("web", "smoke"), browser="firefox"),
        replace(sized("web", "smoke"), options=WebOptions(resolver="browser")),
        replace(sized("web", "smoke"), options=WebOptions(https_records=True)),
    ],
)
def test_a_plan_that_needs_the_testbed_is_refused(tmp_path: Path, plan: Plan) -> None:
    with pytest.raises(CampaignError, match="live pages are"):
        call(tmp_path, plan)


def test_consent_is_the_sentence_or_the_option(tmp_path: Path) -> None:
    live = call(tmp_path)
    for answer in ("", "yes", "i may send this"):
        with pytest.raises(outside.OutsideError, match="nothing was sent"):
            consent(live, given=False, ask=lambda _question, answer=answer: answer)
        with pytest.raises(outside.OutsideError):
            outside.check_names(["www.shop.example"], "a browser")
    try:
        consent(live, given=False, ask=lambda _question: outside.SENTENCE)
        outside.check("203.0.113.2")
        outside.check_names(["www.shop.example"], "a browser")
    finally:
        outside.withdraw()
    with pytest.raises(outside.OutsideError):
        outside.check_names(["www.shop.example"], "a browser")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--study", "web", "--resolver", "quad9"], "belong together"),
        (["--study", "loss", "--sites", "sites.txt", "--resolver", "quad9"], "need --study web"),
    ],
)
def test_options_that_do_not_go_together(monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    monkeypatch.delenv("CROSSLAYER_RESOLVERS", raising=False)
    done = CliRunner().invoke(cli, ["measure", *arguments])
    assert done.exit_code == 2
    assert message in done.output


def test_a_dry_run_prints_and_ends(tmp_path: Path) -> None:
    sites, out = file_of(tmp_path, "https://www.shop.example/"), tmp_path / "out"
    arguments = ["--sites", str(sites), "--resolver", "quad9", "--dry-run", "--out", str(out)]
    done = CliRunner().invoke(cli, ["measure", "--study", "web", *arguments])
    assert done.exit_code == 0
    assert "https://www.shop.example/" in done.output
    assert not out.exists()


def test_queries_of_a_load_count_and_delay_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.time", lambda: now)
    ledger = QueryLedger(2.0, 20, None)
    assert ledger.take("one") == 0
    ledger.charge("one", 8)
    assert ledger.left("one") == 11
    assert ledger.take("one") == pytest.approx(now + 0.5 + 4.0)
    assert ledger.take("two") == 0
    now += 4.5
    assert ledger.take("one") == 0


def test_an_unknown_resolver(tmp_path: Path) -> None:
    with pytest.raises(ResolversError, match="is not the name of a known resolver"):
        live_pages(sized("web", "smoke"), file_of(tmp_path, "https://a.example/"), ["quad"], None)
