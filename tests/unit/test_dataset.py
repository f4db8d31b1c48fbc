"""Opening a dataset folder: a good one gives its rows, every kind of broken one gives one clear message."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import synthetic
from crosslayer.campaign.dataset import Dataset, DatasetError
from crosslayer.campaign.tables import TABLES

PLAN = {"study": "coalescing", "links": ["fiber"], "pages": ["example.org"], "rounds": 4}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("dataset"), links=["fiber"], pages=["example.org"], rounds=4)


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    return shutil.copytree(good, tmp_path / "dataset")


def parquet(folder: Path, table: str) -> Path:
    return folder / table / "link=fiber" / "part-0.parquet"


def change(folder: Path, table: str, edit: Callable[[pa.Table], pa.Table]) -> None:
    path = parquet(folder, table)
    pq.write_table(edit(pq.read_table(path, partitioning=None)), path)


def with_column(rows: pa.Table, name: str, values: pa.Array, field: pa.Field | None = None) -> pa.Table:
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, field or rows.schema.field(name), values)


def test_open_reads_rows_and_metadata(good: Path) -> None:
    dataset = Dataset.open(good)
    assert dataset.campaign.campaign == "synthetic"
    assert dataset.rounds_per_cell == (4, 4)
    assert dataset.table("dns_exchanges").collect().height == 3 * 4
    assert dataset.table("page_loads").filter(role="measured").collect().height == 2 * 4
    assert dataset.table("page_loads").collect_schema().names() == [
        column.name for column in TABLES["page_loads"].columns
    ]


def test_a_dataset_is_pickled_without_the_tables_asked_for(good: Path) -> None:
    # A report's claims ask for tables in one thread while another starts processes, which get the dataset.
    dataset = Dataset.open(good)
    state = dataset.__getstate__()
    rows = dataset.table("page_loads").collect().height
    assert dataset.__getstate__() == state
    assert pickle.loads(pickle.dumps(dataset)).table("page_loads").collect().height == rows


def test_caption_says_campaign_rounds_backend_and_host(good: Path) -> None:
    caption = Dataset.open(good).caption
    assert caption == (
        "Campaign synthetic: 4 rounds of each link and page in real time, over links emulated by netem in "
        "User-Mode Linux. Measured on Example CPU (2 cores), Debian 12, Linux 6.1.0."
    )


def test_caption_of_an_unfinished_campaign_says_how_far_it_got(folder: Path) -> None:
    content = json.loads((folder / "campaign.json").read_text())
    content["plan"]["rounds"] = 30
    (folder / "campaign.json").write_text(json.dumps(content))
    assert "4 of 30 rounds of each link and page" in Dataset.open(folder).caption


def test_absent_table_gives_no_rows(folder: Path) -> None:
    shutil.rmtree(folder / "page_loads")
    assert Dataset.open(folder).table("page_loads").collect().height == 0


def counting(folder: Path) -> Path:
    """The same with the rows of each table in its campaign.json, as an export writes it."""
    path = folder / "campaign.json"
    rows = {
        name: pl.scan_parquet(folder / name / "**/*.parquet").select(pl.len()).collect().item()
        for name in TABLES
        if (folder / name).exists()
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": rows}))
    return folder


@pytest.mark.parametrize("missing", ["page_loads", "page_loads/link=fiber/part-0.parquet"])
def test_a_table_that_is_counted_and_not_there_is_named(folder: Path, missing: str) -> None:
    counted = Dataset.open(counting(folder)).campaign.rows["page_loads"]
    assert counted > 3
    path = folder / missing
    path.unlink() if path.is_file() else shutil.rmtree(path)
    with pytest.raises(DatasetError, match=rf"page_loads: has 0 rows, and campaign.json counts {counted}\. Export"):
        Dataset.open(folder)


def test_a_table_with_a_part_of_its_rows_is_named(folder: Path) -> None:
    counted = Dataset.open(counting(folder)).campaign.rows["page_loads"]
    change(folder, "page_loads", lambda rows: rows.slice(3))
    with pytest.raises(DatasetError, match=f"page_loads: has {counted - 3} rows, and campaign.json counts {counted}"):
        Dataset.open(folder)


def test_column_newer_than_the_dataset_reads_as_null(folder: Path) -> None:
    change(folder, "page_loads", lambda rows: rows.drop_columns(["setup_ms"]))
    assert Dataset.open(folder).table("page_loads").collect()["setup_ms"].is_null().all()


def test_unknown_table_is_an_error(good: Path) -> None:
    with pytest.raises(DatasetError, match="no table 'pages'"):
        Dataset.open(good).table("pages")


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no such dataset folder") as error:
        Dataset.open(tmp_path / "nowhere")
    assert "crosslayer measure" in error.value.next_step
    assert "nowhere" not in error.value.next_step


def test_outside_a_checkout_the_missing_default_is_not_recommended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match=r"^data/raw/coalescing: there is no such dataset folder") as error:
        Dataset.open("data/raw/coalescing")
    assert "coalescing" not in error.value.next_step


def test_missing_campaign_file(folder: Path) -> None:
    (folder / "campaign.json").unlink()
    with pytest.raises(DatasetError, match=r"no campaign\.json"):
        Dataset.open(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must be an object, is \\[\\]"),
        ("{}", "schema version None"),
        ('{"schema_version": 99}', "schema version 99"),
        ('{"schema_version": 3, "plan": {}, "campaign": "x"}', "key 'study': is missing"),
        (json.dumps({"schema_version": 3, "plan": PLAN}), "key 'campaign': is missing"),
        ('{"schema_version": 3, "plan": 3, "host": {}, "campaign": "x"}', "key 'plan': must be an object"),
    ],
)
def test_broken_campaign_file(folder: Path, text: str, message: str) -> None:
    (folder / "campaign.json").write_text(text)
    with pytest.raises(DatasetError, match=message):
        Dataset.open(folder)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"plan": PLAN | {"links": "fiber"}}, r"key 'links': must be an array"),
        ({"plan": PLAN | {"pages": [1]}}, r"key 'pages\[0\]': must be a string"),
        ({"plan": PLAN | {"rounds": "many"}}, "key 'rounds': must be a whole number"),
        ({"host": "here"}, "key 'host': must be an object"),
        ({"notes": "one"}, "key 'notes': must be an array"),
        ({"versions": "3.11"}, "key 'versions': must be an object"),
        ({"git": "main"}, "key 'git': must be an object"),
    ],
)
def test_campaign_file_with_a_value_of_another_type(folder: Path, changed: dict[str, object], message: str) -> None:
    content = json.loads((folder / "campaign.json").read_text())
    (folder / "campaign.json").write_text(json.dumps(content | changed))
    with pytest.raises(DatasetError, match=message):
        Dataset.open(folder)


def test_file_that_is_not_parquet(folder: Path) -> None:
    parquet(folder, "tcp_rtts").write_text("round,rtt\n")
    with pytest.raises(DatasetError, match="not a Parquet file"):
        Dataset.open(folder)


def test_file_that_ends_too_early(folder: Path) -> None:
    content = parquet(folder, "page_loads").read_bytes()
    parquet(folder, "page_loads").write_bytes(content[: len(content) // 2])
    with pytest.raises(DatasetError, match=r"link=fiber/part-0\.parquet: is not a Parquet file"):
        Dataset.open(folder)


def test_file_that_is_damaged_inside(folder: Path) -> None:
    """Its footer is whole, its columns are not."""
    path = parquet(folder, "page_loads")
    content = path.read_bytes()
    column = (
        pq.ParquetFile(path).metadata.row_group(0).column(TABLES["page_loads"].arrow_schema().get_field_index("plt_ms"))
    )
    start = column.dictionary_page_offset or column.data_page_offset
    end = start + column.total_compressed_size
    path.write_bytes(content[:start] + b"\xff" * (end - start) + content[end:])
    with pytest.raises(DatasetError, match="page_loads/link=fiber: cannot be read"):
        Dataset.open(folder)


def test_file_outside_the_folder_of_a_link(folder: Path) -> None:
    parquet(folder, "page_loads").rename(folder / "page_loads" / "part-0.parquet")
    with pytest.raises(DatasetError, match="is not in a folder link=LINK of page_loads"):
        Dataset.open(folder)


def test_rows_in_the_folder_of_another_link(folder: Path) -> None:
    parquet(folder, "link_checks").parent.rename(folder / "link_checks" / "link=dsl")
    with pytest.raises(DatasetError, match="holds rows of link fiber, expected dsl"):
        Dataset.open(folder)


@pytest.mark.parametrize("table", ["tcp_rtts", "link_checks"])
def test_rows_of_another_campaign(folder: Path, table: str) -> None:
    change(folder, table, lambda rows: with_column(rows, "campaign", pa.array(["other"] * len(rows))))
    with pytest.raises(DatasetError, match="holds rows of campaign other, expected synthetic"):
        Dataset.open(folder)


def test_rows_of_another_study(folder: Path) -> None:
    change(folder, "tcp_rtts", lambda rows: with_column(rows, "study", pa.array(["web"] * len(rows))))
    with pytest.raises(DatasetError, match="holds rows of study web, expected coalescing"):
        Dataset.open(folder)


def test_missing_columns_are_all_named(folder: Path) -> None:
    change(folder, "dns_exchanges", lambda rows: rows.drop_columns(["protocol", "total_ms"]))
    with pytest.raises(DatasetError, match="lacks the columns protocol, total_ms"):
        Dataset.open(folder)


@pytest.mark.parametrize(
    ("table", "column"),
    [("dns_exchanges", "role"), ("page_loads", "early_data_accepted"), ("link_checks", "nominal_rtt_ms")],
)
def test_a_column_that_decides_what_is_analysed_may_not_be_missing(folder: Path, table: str, column: str) -> None:
    change(folder, table, lambda rows: rows.drop_columns([column]))
    with pytest.raises(DatasetError, match=f"lacks the columns {column}"):
        Dataset.open(folder)


@pytest.mark.parametrize("kind", [pa.string(), pa.float32(), pa.int64()])
def test_column_of_another_type(folder: Path, kind: pa.DataType) -> None:
    def edit(rows: pa.Table) -> pa.Table:
        return with_column(rows, "rtt_ms", pc.cast(rows["rtt_ms"], kind, safe=False), pa.field("rtt_ms", kind))

    change(folder, "tcp_rtts", edit)
    with pytest.raises(DatasetError, match=f"rtt_ms is {kind}, expected double"):
        Dataset.open(folder)


def test_column_in_another_unit(folder: Path) -> None:
    seconds = TABLES["tcp_rtts"].arrow_schema().field("rtt_ms").with_metadata({"description": "RTT", "unit": "s"})
    change(folder, "tcp_rtts", lambda rows: with_column(rows, "rtt_ms", rows["rtt_ms"], seconds))
    with pytest.raises(DatasetError, match="rtt_ms is in s, expected ms"):
        Dataset.open(folder)


def test_parquet_of_another_schema_version(folder: Path) -> None:
    change(folder, "tcp_rtts", lambda rows: rows.replace_schema_metadata({"schema_version": "7"}))
    with pytest.raises(DatasetError, match="schema version 7"):
        Dataset.open(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_value_that_is_not_a_number(folder: Path, value: float) -> None:
    change(folder, "page_loads", lambda rows: with_column(rows, "fcp_ms", pa.array([value, *[1.0] * (len(rows) - 1)])))
    with pytest.raises(DatasetError, match="fcp_ms has 1 NaN or infinite"):
        Dataset.open(folder)


def test_duration_below_zero(folder: Path) -> None:
    change(folder, "tcp_rtts", lambda rows: with_column(rows, "rtt_ms", pa.array([-0.1, 1.0, 1.0, 1.0])))
    with pytest.raises(DatasetError, match="rtt_ms has 1 values below 0"):
        Dataset.open(folder)


def test_a_difference_may_be_below_zero(folder: Path) -> None:
    """A packet that is ahead of its link's rule must not take the campaign with it."""
    early = pa.array([-0.1] * pq.read_metadata(parquet(folder, "link_checks")).num_rows)
    change(folder, "link_checks", lambda rows: with_column(rows, "trace_late_down_ms", early))
    assert Dataset.open(folder).table("link_checks").collect()["trace_late_down_ms"].unique().to_list() == [-0.1]


@pytest.mark.parametrize("column", ["round", "protocol"])
def test_required_column_without_a_value(folder: Path, column: str) -> None:
    def edit(rows: pa.Table) -> pa.Table:
        values = pa.array([None, *rows[column].to_pylist()[1:]])
        return with_column(
            rows, column, values, TABLES["dns_exchanges"].arrow_schema().field(column).with_nullable(True)
        )

    change(folder, "dns_exchanges", edit)
    with pytest.raises(DatasetError, match=f"{column} has 1 rows without a value"):
        Dataset.open(folder)


def test_condition_of_an_unknown_name(folder: Path) -> None:
    """It would escape the rule that 0-RTT counts only with evidence."""
    change(folder, "page_loads", lambda rows: with_column(rows, "h3", pc.utf8_upper(rows["h3"])))
    with pytest.raises(DatasetError, match="h3 holds '0-RTT', expected 1-rtt, 0-rtt"):
        Dataset.open(folder)


def test_success_without_its_value(folder: Path) -> None:
    change(folder, "page_loads", lambda rows: with_column(rows, "plt_ms", pa.nulls(len(rows), pa.float64())))
    with pytest.raises(DatasetError, match="plt_ms has 12 rows that succeeded but have no value"):
        Dataset.open(folder)


@pytest.mark.parametrize("missing", ["handshake_ms", "query_ms"])
def test_a_handshake_without_its_query_and_the_other_way_round(folder: Path, missing: str) -> None:
    change(folder, "dns_exchanges", lambda rows: with_column(rows, missing, pa.nulls(len(rows), pa.float64())))
    with pytest.raises(DatasetError, match=f"{missing} has 12 rows that succeeded but have no value"):
        Dataset.open(folder)


def test_a_client_that_cannot_tell_handshake_and_query_apart_has_neither(folder: Path) -> None:
    for name in ("handshake_ms", "query_ms"):
        change(
            folder, "dns_exchanges", lambda rows, name=name: with_column(rows, name, pa.nulls(len(rows), pa.float64()))
        )
    assert Dataset.open(folder).table("dns_exchanges").collect()["handshake_ms"].null_count() == 12


def test_half_of_the_evidence_for_early_data(folder: Path) -> None:
    change(folder, "page_loads", lambda rows: with_column(rows, "early_data_accepted", pa.nulls(len(rows), pa.bool_())))
    with pytest.raises(DatasetError, match="early_data_accepted has 12 rows that succeeded but have no value"):
        Dataset.open(folder)


def test_observation_that_is_there_twice(folder: Path) -> None:
    change(folder, "dns_exchanges", lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    with pytest.raises(DatasetError, match="more than once, first in synthetic, fiber, coalescing"):
        Dataset.open(folder)


@pytest.mark.parametrize("rows_at_once", [1, 2, 5, 12])
def test_observation_that_is_there_twice_far_apart(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    monkeypatch.setattr("crosslayer.campaign.dataset._AT_ONCE", rows_at_once)
    assert Dataset.open(folder).rounds_per_cell == (4, 4)
    test_observation_that_is_there_twice(folder)


def test_link_whose_nominal_rtt_is_not_a_number(folder: Path) -> None:
    change(folder, "link_checks", lambda rows: with_column(rows, "nominal_rtt_ms", pa.array([np.nan])))
    with pytest.raises(DatasetError, match="nominal_rtt_ms has 1 NaN or infinite"):
        Dataset.open(folder)


def test_link_with_two_nominal_rtts(folder: Path) -> None:
    def edit(rows: pa.Table) -> pa.Table:
        return with_column(pa.concat_tables([rows, rows]), "nominal_rtt_ms", pa.array([14.8, 30.0]))

    change(folder, "link_checks", edit)
    with pytest.raises(DatasetError, match=r"several nominal RTTs: 14\.8, 30 ms"):
        Dataset.open(folder)


def test_no_rows_at_all(folder: Path) -> None:
    for table in TABLES:
        if parquet(folder, table).exists():
            change(folder, table, lambda rows: rows.slice(0, 0))
    with pytest.raises(DatasetError, match="no observation at all"):
        Dataset.open(folder)


def test_arrow_schema_carries_units_and_refuses_null_in_a_required_column(tmp_path: Path) -> None:
    schema = TABLES["tcp_rtts"].arrow_schema()
    assert schema.field("rtt_ms").metadata[b"unit"] == b"ms"
    assert schema.field("campaign").metadata[b"description"]
    assert schema.metadata[b"schema_version"] == b"3"
    row = {column.name: None for column in TABLES["tcp_rtts"].columns}
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        pq.write_table(pa.Table.from_pylist([row], schema=schema), tmp_path / "x.parquet")
