"""RO-Crates: which run made which file is there, and the validator of the profile finds nothing wrong, offline."""

from __future__ import annotations

import importlib.resources
import json
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import pytest
from tests.committed import CAMPAIGNS

import synthetic
from crosslayer.campaign import crate

COMMITTED = sorted(CAMPAIGNS.values())


def entities(path: Path) -> dict[str, dict[str, Any]]:
    """By identifier, without percent signs."""
    return {unquote(entity["@id"]): entity for entity in json.loads(path.read_text(encoding="utf-8"))["@graph"]}


class Context:
    """Answer to a request for the context of the JSON-LD, from what the package `rocrate` brings along."""

    status_code = 200
    headers: ClassVar[dict[str, str]] = {"Content-Type": "application/ld+json"}

    def json(self) -> Any:
        return json.loads((importlib.resources.files("rocrate") / "data" / "ro-crate.jsonld").read_text())


def validate(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing that the specification asks for or recommends is missing, says the validator of its authors, offline."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        services = pytest.importorskip("rocrate_validator.services", reason="roc-validator is not installed")
        from rocrate_validator.models import Severity, ValidationSettings
        from rocrate_validator.utils.http import HttpRequester

        monkeypatch.setattr(HttpRequester, "get", lambda *_, **__: Context(), raising=False)
        settings = ValidationSettings(
            rocrate_uri=str(folder),
            profile_identifier="process-run-crate",
            requirement_severity=Severity.RECOMMENDED,
            offline=True,
            cache_path=tmp_path / "cache",
        )
        issues = services.validate(settings).get_issues(Severity.RECOMMENDED)
    messages = [issue.message for issue in issues]
    assert messages == ["The organization SHOULD have a URL."], (
        "the only unmet recommendation is the URL of the organization"
    )


@pytest.mark.slow
def test_a_campaign_tells_its_plan_its_program_and_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = synthetic.write(tmp_path / "dataset", links=["fiber"], pages=["example.org"], rounds=2)
    result = entities(crate.of_campaign(folder))
    run = result["#measurement"]
    assert (run["startTime"], run["endTime"]) == ("2026-01-02T03:04:05+00:00", "2026-01-02T05:04:05+00:00")
    assert run["agent"] == {"@id": "#agent"}
    assert result["./"]["mentions"] == {"@id": "#measurement"}
    assert result[run["instrument"]["@id"]]["softwareVersion"].endswith("git revision " + "0" * 40)
    assert {result[item["@id"]]["name"]: result[item["@id"]]["value"] for item in run["object"]} == {
        "plan: study": "coalescing",
        "plan: links": "fiber",
        "plan: pages": "example.org",
        "plan: rounds": "2",
        "plan: seed": "1",
        "plan: clock": "wall",
    }
    made = {unquote(item["@id"]) for item in run["result"]}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert made == there - {crate.FILE_NAME}
    validate(folder, monkeypatch, tmp_path)


@pytest.mark.slow
def test_figures_tell_the_dataset_and_the_published_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = synthetic.write(tmp_path / "dataset", links=["fiber"], pages=["example.org"], rounds=2)
    folder = tmp_path / "figures" / "coalescing"
    folder.mkdir(parents=True)
    files = [folder / name for name in ("fig05.csv", "fig05.svg", "claims.parquet")]
    for file in files:
        file.write_text(file.name)
    begin = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    path = crate.of_figures(folder, dataset, files, begin)
    result = entities(path)
    run = result["#drawing"]
    assert run["startTime"] == "2026-02-03T04:05:06+00:00"
    assert {item["@id"] for item in run["object"]} == {"#synthetic", "#published-values"}
    assert {item["@id"] for item in run["result"]} == {"fig05.csv", "fig05.svg", "claims.parquet"}
    validate(folder, monkeypatch, tmp_path)
    before = path.read_bytes()
    crate.of_figures(folder, dataset, files, datetime.now(UTC))
    assert path.read_bytes() == before, "the same files are of the run that made them"
    files[0].write_text("another")
    crate.of_figures(folder, dataset, files, datetime.now(UTC))
    assert path.read_bytes() != before


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_committed_crates_are_what_would_be_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`CROSSLAYER_AGENT="The crosslayer maintainers" python -m crosslayer.campaign.crate data/raw/*/`."""
    monkeypatch.setenv("CROSSLAYER_AGENT", "The crosslayer maintainers")
    copy = tmp_path / folder.name
    for file in (path for path in folder.rglob("*") if path.is_file() and path.name != crate.FILE_NAME):
        target = copy / file.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    assert crate.of_campaign(copy).read_text() == (folder / crate.FILE_NAME).read_text()


def shape(folder: Path) -> frozenset[tuple[str, tuple[str, ...]]]:
    """Which kinds of entities a crate has, and what is said of each."""
    return frozenset((str(one["@type"]), tuple(sorted(one))) for one in entities(folder / crate.FILE_NAME).values())


@pytest.mark.slow
def test_committed_crates_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each shape: the validator takes seconds for each, and finds nothing else in another of the same shape."""
    for folder in {shape(folder): folder for folder in COMMITTED}.values():
        validate(folder, monkeypatch, tmp_path)
