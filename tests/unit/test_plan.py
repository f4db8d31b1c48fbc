"""Plans: every cell once a round, orders drawn from the seed, bad values named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crosslayer import pages
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.measurer import RoundContext
from crosslayer.campaign.plan import Cell, Plan, changed, check_names
from crosslayer.studies import STUDIES, load_plan, refusals, sized

PAGES = pages.load_pages(Path(__file__).parents[2] / "sites")
QUICK = sized("coalescing", "quick")
CONDITIONS = ["a", "b", "c", "d", "e", "f"]


def test_a_round_has_every_cell_once_and_keeps_the_pages_of_a_link_together() -> None:
    plan = QUICK
    for number in range(20):
        order = plan.order(number)
        assert sorted(order, key=str) == sorted(plan.cells, key=str)
        links = [cell.link for cell in order]
        assert [link for i, link in enumerate(links) if i == 0 or links[i - 1] != link] == list(dict.fromkeys(links))


def test_orders_differ_between_rounds_and_seeds_and_repeat_with_the_seed() -> None:
    assert len({tuple(QUICK.order(n)) for n in range(20)}) > 10
    assert [QUICK.order(n) for n in range(5)] == [QUICK.order(n) for n in range(5)]
    assert [QUICK.resized(seed=1).order(n) for n in range(5)] != [QUICK.resized(seed=2).order(n) for n in range(5)]


def test_every_condition_is_first_about_equally_often() -> None:
    plan, cell = QUICK, Cell("fiber", "example.org")
    firsts = [plan.shuffled(n, cell, CONDITIONS)[0] for n in range(1200)]
    for condition in CONDITIONS:
        assert 150 < firsts.count(condition) < 250  # 200 expected, sd 13


def test_the_order_of_a_round_does_not_depend_on_rounds_before_it() -> None:
    plan, cell = QUICK, Cell("dsl", "example.org")
    after_others = [plan.shuffled(n, cell, CONDITIONS) for n in range(8)][7]
    assert after_others == plan.shuffled(7, cell, CONDITIONS)


@pytest.mark.parametrize("study", ["coalescing", "combinations"])
def test_every_cell_has_every_self_check_once_in_a_period(study: str) -> None:
    measurer = STUDIES[study].measurer

    def checked(plan: Plan, cell: Cell) -> list[str]:
        of_plan = measurer.__new__(measurer)
        of_plan.context = RoundContext(plan, "", {}, *[None] * 4)  # type: ignore[arg-type]
        results = [of_plan.occasional_conditions(cell, number) for number in range(8)]
        assert all(len(of_round) <= 1 for of_round in results)
        assert [of_plan.occasional_conditions(cell, number) for number in range(8, 16)] == results
        tables = [of_plan.table_and_columns(condition) for of_round in results for condition in of_round]
        assert {(table, columns["h3"], columns["condition"], columns["role"]) for table, columns in tables} <= {
            ("page_loads", "1-rtt", "main", "self-check"),
            ("page_loads", "0-rtt", "main", "self-check"),
            ("page_loads", "0-rtt", "no-token", "self-check"),
            ("page_loads", "1-rtt", "refused", "control"),
        }
        return [condition for of_round in results for condition in of_round]

    every = ["A/A H3 0-RTT", "A/A H3 0-RTT without token", "A/A H3 1-RTT", "Ticket refused"]
    for cell in QUICK.cells:
        assert sorted(checked(QUICK, cell)) == every
        assert checked(changed(QUICK, {"options": {"aa_period": 0}}), cell) == []


def test_quick_covers_the_papers_cells() -> None:
    assert len(sized("coalescing", "quick").cells) == 15
    assert sized("coalescing", "quick").rounds >= 3


@pytest.mark.parametrize("study", STUDIES)
def test_every_study_has_its_sizes(study: str) -> None:
    smoke, quick, paper = (sized(study, size) for size in ("smoke", "quick", "paper"))
    assert smoke.study == quick.study == paper.study == study
    # What another command measures has one cell: its machine.
    assert set(smoke.cells) < set(quick.cells) <= set(paper.cells) or STUDIES[study].measured_by
    assert smoke.rounds < quick.rounds < paper.rounds


def test_an_unknown_study_or_size_is_named() -> None:
    with pytest.raises(CampaignError, match="no study 'single'"):
        sized("single", "quick")
    with pytest.raises(CampaignError, match="no size 'huge'"):
        sized("coalescing", "huge")


@pytest.mark.parametrize(
    ("values", "what", "key"),
    [
        ({"rounds": 0}, "at least 1", "rounds"),
        ({"rounds": "3"}, "whole number", "rounds"),
        ({"rounds": True}, "whole number", "rounds"),
        ({"links": []}, "at least 1", "links"),
        ({"links": "fiber"}, "a list", "links"),
        ({"links": ["fiber", "fiber"]}, "twice", "links"),
        ({"aa_period": 4}, r"table \[options\]", "aa_period"),
        ({"options": {"proxy": "squid"}}, "is an unknown key", "proxy"),
        ({"options": {"aa_period": -1}}, "must not be negative", "aa_period"),
        ({"options": 3}, "a table", "options"),
        ({"round": 3}, "is an unknown key", "round"),
    ],
)
def test_a_bad_value_is_named(values: dict[str, object], what: str, key: str) -> None:
    with pytest.raises(CampaignError, match=what) as caught:
        changed(QUICK, values, where="plan.toml")
    assert key in caught.value.where
    assert "plan.toml" in caught.value.where


def test_the_values_of_an_option_are_named() -> None:
    with pytest.raises(CampaignError, match="crosslayer, dnsproxy"):
        changed(sized("authoritative", "quick"), {"options": {"proxy": "squid"}})
    with pytest.raises(CampaignError, match=r"no kind of record is called broken; there are .*whole"):
        changed(sized("https-records", "quick"), {"options": {"kinds": ["broken"]}})
    with pytest.raises(CampaignError, match="twice"):
        changed(sized("https-records", "quick"), {"options": {"kinds": ["ech", "ech"]}})


def test_a_plan_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('links = ["4g"]\nrounds = 7\n', encoding="utf-8")
    assert load_plan(file) == QUICK.resized(links=("4g",), rounds=7)
    file.write_text('study = "authoritative"\n[options]\nclients = 2\n', encoding="utf-8")
    plan = load_plan(file)
    assert (plan.study, plan.options.clients, plan.options.queries) == ("authoritative", 2, 4)
    file.write_text('study = "nothing"\n', encoding="utf-8")
    with pytest.raises(CampaignError, match="no study 'nothing'"):
        load_plan(file)
    file.write_text("links = [", encoding="utf-8")
    with pytest.raises(CampaignError, match="not TOML"):
        load_plan(file)
    with pytest.raises(CampaignError, match="cannot be read"):
        load_plan(tmp_path / "other.toml")


def test_unknown_links_and_pages_are_refused_before_anything_starts() -> None:
    with pytest.raises(CampaignError, match="no link profile 'fibre'"):
        check_names(QUICK.resized(links=("fibre",)), links={"fiber"}, pages=PAGES, primes_alias=True)
    with pytest.raises(CampaignError, match="no page 'x'"):
        check_names(QUICK.resized(links=("fiber",), pages=("x",)), links={"fiber"}, pages=PAGES, primes_alias=True)
    check_names(QUICK.resized(links=("fiber",)), links={"fiber"}, pages=PAGES, primes_alias=True)


def test_a_browser_is_taken_only_by_a_study_that_can_and_with_what_it_can() -> None:
    known: dict[str, Any] = {"links": {"fiber"}, "pages": PAGES, "primes_alias": True}
    plan = changed(QUICK, {"links": ["fiber"], "browser": "firefox"})
    check_names(plan, **known, browsers=STUDIES["coalescing"].browsers)
    with pytest.raises(CampaignError, match="the study 'coalescing' cannot be measured in Firefox"):
        check_names(plan, **known)
    with pytest.raises(CampaignError, match="only Chromium writes a netlog"):
        check_names(plan.resized(capture=("netlog",)), **known, browsers=("chromium", "firefox"))
    with pytest.raises(CampaignError, match="browser"):
        changed(QUICK, {"browser": "lynx"})


def test_firefox_has_no_load_without_a_token() -> None:
    def measured(browser: str) -> set[str]:
        measurer = STUDIES["coalescing"].measurer
        of_plan = measurer.__new__(measurer)
        of_plan.context = RoundContext(changed(QUICK, {"browser": browser}), "", {}, *[None] * 4)  # type: ignore[arg-type]
        cell = QUICK.cells[0]
        return {*of_plan.conditions(cell), *(c for n in range(8) for c in of_plan.occasional_conditions(cell, n))}

    assert measured("chromium") - measured("firefox") == {"H3 0-RTT without token", "A/A H3 0-RTT without token"}


def test_each_study_that_cannot_use_a_page_of_several_hosts_gives_its_own_reason() -> None:
    several = replace(PAGES["wikipedia.org"], origins=("cdn.example", "fonts.example"))
    fit, unfit = refusals(several)
    assert {"browsers", "coalescing", "combinations", "early-data", "web"} <= set(fit)
    study = STUDIES["address-token"]
    reason = f"it has 3 host names; {study.one_host}"
    assert unfit[reason] == ["address-token"]
    plan = sized("address-token", "quick").resized(links=("fiber",), pages=("wikipedia.org",))
    pages = {**PAGES, "wikipedia.org": several}
    with pytest.raises(CampaignError, match=f"page 'wikipedia.org' cannot be loaded .*: {reason}"):
        check_names(plan, links={"fiber"}, pages=pages, primes_alias=study.primes_alias, one_host=study.one_host)
    assert refusals(PAGES["wikipedia.org"]) == (list(STUDIES), {})


@pytest.mark.parametrize("name", ["warmup", "login-form", "shop"])
def test_pages_that_no_load_can_prime_are_refused(name: str) -> None:
    with pytest.raises(
        CampaignError, match=f"page '{name}' cannot be loaded .* example.org, instagram.com, long-document, wikipedia"
    ):
        check_names(QUICK.resized(links=("fiber",), pages=(name,)), links={"fiber"}, pages=PAGES, primes_alias=True)
