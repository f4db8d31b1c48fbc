"""Plans: every cell once a round, orders drawn from the seed, bad values named."""

from __future__ import annotations

from pathlib import Path

import pytest

from crosslayer import pages
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import STUDIES, Cell, Plan, changed, check_names, load_plan, sized

PAGES = pages.load_pages(Path(__file__).parents[2] / "sites")
CONDITIONS = ["a", "b", "c", "d", "e", "f"]


def test_a_round_has_every_cell_once_and_keeps_the_pages_of_a_link_together() -> None:
    plan = Plan()
    for number in range(20):
        order = plan.order(number)
        assert sorted(order, key=str) == sorted(plan.cells, key=str)
        links = [cell.link for cell in order]
        assert [link for i, link in enumerate(links) if i == 0 or links[i - 1] != link] == list(dict.fromkeys(links))


def test_orders_differ_between_rounds_and_seeds_and_repeat_with_the_seed() -> None:
    assert len({tuple(Plan().order(n)) for n in range(20)}) > 10
    assert [Plan().order(n) for n in range(5)] == [Plan().order(n) for n in range(5)]
    assert [Plan(seed=1).order(n) for n in range(5)] != [Plan(seed=2).order(n) for n in range(5)]


def test_every_condition_is_first_about_equally_often() -> None:
    plan, cell = Plan(), Cell("fiber", "example.org")
    firsts = [plan.shuffled(n, cell, CONDITIONS)[0] for n in range(1200)]
    for condition in CONDITIONS:
        assert 150 < firsts.count(condition) < 250  # 200 expected, sd 13


def test_the_order_of_a_round_does_not_depend_on_rounds_before_it() -> None:
    plan, cell = Plan(), Cell("dsl", "example.org")
    after_others = [plan.shuffled(n, cell, CONDITIONS) for n in range(8)][7]
    assert after_others == plan.shuffled(7, cell, CONDITIONS)


def test_the_self_check_rides_on_one_cell_only() -> None:
    plan = Plan()
    assert [cell for cell in plan.cells if plan.has_aa(cell)] == [Cell("fiber", "example.org")]
    assert not any(changed(plan, {"aa_cell": False}).has_aa(cell) for cell in plan.cells)


def test_quick_covers_the_papers_cells() -> None:
    assert len(sized("coalescing", "quick").cells) == 15
    assert sized("coalescing", "quick").rounds >= 3


@pytest.mark.parametrize("study", STUDIES)
def test_every_study_has_its_sizes(study: str) -> None:
    smoke, quick, paper = (sized(study, size) for size in ("smoke", "quick", "paper"))
    assert smoke.study == quick.study == paper.study == study
    assert set(smoke.cells) < set(quick.cells) <= set(paper.cells)
    assert smoke.rounds < quick.rounds < paper.rounds


def test_an_unknown_study_or_size_is_named() -> None:
    with pytest.raises(CampaignError, match="no study 'single'"):
        sized("single", "quick")
    with pytest.raises(CampaignError, match="no size 'huge'"):
        sized("coalescing", "huge")


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"rounds": 0}, "above 0"),
        ({"rounds": "3"}, "whole number"),
        ({"rounds": True}, "whole number"),
        ({"links": []}, "list of names"),
        ({"links": "fiber"}, "list of names"),
        ({"links": ["fiber", "fiber"]}, "twice"),
        ({"study": "nothing"}, "no study"),
        ({"proxy": "squid"}, "no proxy"),
        ({"aa_cell": 1}, "true or false"),
        ({"round": 3}, "not a key"),
    ],
)
def test_a_bad_value_is_named(values: dict[str, object], what: str) -> None:
    with pytest.raises(CampaignError, match=what) as caught:
        changed(Plan(), values, where="plan.toml")
    assert next(iter(values)) in caught.value.where


def test_a_plan_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('links = ["4g"]\nrounds = 7\n', encoding="utf-8")
    assert load_plan(file) == Plan(links=("4g",), rounds=7)
    file.write_text("links = [", encoding="utf-8")
    with pytest.raises(CampaignError, match="not TOML"):
        load_plan(file)
    with pytest.raises(CampaignError, match="cannot be read"):
        load_plan(tmp_path / "other.toml")


def test_unknown_links_and_pages_are_refused_before_anything_starts() -> None:
    with pytest.raises(CampaignError, match="no link profile 'fibre'"):
        check_names(Plan(links=("fibre",)), links={"fiber"}, pages=PAGES)
    with pytest.raises(CampaignError, match="no page 'x'"):
        check_names(Plan(links=("fiber",), pages=("x",)), links={"fiber"}, pages=PAGES)
    check_names(Plan(links=("fiber",)), links={"fiber"}, pages=PAGES)


@pytest.mark.parametrize("name", ["warmup", "login-form", "shop"])
def test_pages_that_no_load_can_prime_are_refused(name: str) -> None:
    with pytest.raises(CampaignError, match=f"page '{name}' cannot be loaded .* example.org, instagram.com, wikipedia"):
        check_names(Plan(links=("fiber",), pages=(name,)), links={"fiber"}, pages=PAGES)
