"""Unusual and hostile inputs of every kind: a right result, or an error with fault, position and next step."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dns.message
import dns.rrset
import pytest
from click.testing import CliRunner

import synthetic
from crosslayer import pages
from crosslayer.campaign.dataset import Dataset, DatasetError
from crosslayer.campaign.errors import CampaignError
from crosslayer.cli import cli
from crosslayer.dns import ClientSettings, Protocol, Question, build_query, check_answer
from crosslayer.errors import CrosslayerError
from crosslayer.links import LinkError, load_profiles
from crosslayer.pages import PageError, from_har
from crosslayer.resolvers import ResolversError
from crosslayer.resolvers.listed import read
from crosslayer.studies import load_plan
from har_cases import contents

_NAME = "Use at most 60 letters, digits, '.', '_' and '-', the first a letter or digit."
_UTF_8 = "Save it as text in UTF-8."


def refused(call: Callable[[], object], kind: type[CrosslayerError], what: str, where: str, next_step: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert (caught.value.what, caught.value.where, caught.value.next_step) == (what, where, next_step)


@pytest.mark.parametrize(
    ("content", "what", "where", "next_step"),
    [
        (b'["a/b"]\nrtt_ms = 3\n', "is not the name of a link", ", profile 'a/b'", _NAME),
        (b'["a,b"]\nrtt_ms = 3\n', "is not the name of a link", ", profile 'a,b'", _NAME),
        (b'["a\\u0000b"]\nrtt_ms = 3\n', "is not the name of a link", ", profile 'a\0b'", _NAME),
        (b'[""]\nrtt_ms = 3\n', "is not the name of a link", ", profile ''", _NAME),
        (b"[%s]\nrtt_ms = 3\n" % (b"x" * 61), "is not the name of a link", f", profile '{61 * 'x'}'", _NAME),
        (
            b"[rtt-50]\nrtt_ms = 3\n",
            "has a reserved name, which describes a link by itself",
            ", profile 'rtt-50'",
            "Choose another name.",
        ),
        (b"# nothing yet\n", "has no link", "", "Add one: a table [NAME] with rtt_ms."),
        ("[a]\nrtt_ms = 3\n".encode("utf-16"), "is not UTF-8", "", _UTF_8),
    ],
)
def test_profiles(tmp_path: Path, content: bytes, what: str, where: str, next_step: str) -> None:
    file = tmp_path / "links.toml"
    file.write_bytes(content)
    refused(lambda: load_profiles(file), LinkError, what, f"{file}{where}", next_step)


def test_a_profile_from_a_device_without_end() -> None:
    zero, step = Path("/dev/zero"), "Name a TOML file of links, as in docs/howto/links.md."
    refused(lambda: load_profiles(zero), LinkError, "has more than 50000000 bytes", "/dev/zero", step)


@pytest.mark.parametrize(
    ("content", "what", "where", "next_step"),
    [
        (b'study = "Web"\n', "there is no study 'Web'", ", key 'study'", "Did you mean 'web'? Choose one of: "),
        (b'study = ["web"]\n', "there is no study ['web']", ", key 'study'", "Did you mean 'web'? Choose one of: "),
        (
            b"rounds = 2026-01-01\n",
            "must be a whole number, is datetime.date(2026, 1, 1)",
            ", key 'rounds'",
            "Write it",
        ),
        (b"[plan]\nrounds = 3\n", "is an unknown key", ", key 'plan'", "Keys are: study, links, pages, "),
        (bytes(range(256)), "is not UTF-8", "", _UTF_8),
    ],
)
def test_plans(tmp_path: Path, content: bytes, what: str, where: str, next_step: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_bytes(content)
    with pytest.raises(CampaignError) as caught:
        load_plan(file)
    assert (caught.value.what, caught.value.where) == (what, f"{file}{where}")
    assert caught.value.next_step.startswith(next_step)


@pytest.mark.parametrize("end", [b"\r\n", b"\r", b"\n"])
def test_a_plan_of_any_editor(tmp_path: Path, end: bytes) -> None:
    file = tmp_path / "plan.toml"
    file.write_bytes(b"\xef\xbb\xbf" + end.join([b"# mine", b"rounds = 0x10", b'links = ["4g"]', b""]))
    plan = load_plan(file)
    assert (plan.rounds, plan.links) == (16, ("4g",))


_PAGE = 'title = "t"\nhost = "www.mine.test"\n[[resource]]\npath = "/"\nsource = "%s"\nwire_bytes = 150\n'
_OTHER = '[[resource]]\npath = "%s"\nsource = "index.html"\nwire_bytes = 150\n'


@pytest.mark.parametrize(
    ("text", "what", "where", "next_step"),
    [
        (
            _PAGE % "index\\u0000.html",
            "cannot be opened (its name has a null byte)",
            ", resource /, key 'source'",
            "Name a file of the page's folder",
        ),
        (
            _PAGE % (300 * "a" + ".html"),
            "cannot be opened (File name too long)",
            ", resource /, key 'source'",
            "Name a file of the page's folder",
        ),
        (
            _PAGE % "pipe.html",
            "names the missing file 'pipe.html'",
            ", resource /, key 'source'",
            "Add it to {folder} or correct the name",
        ),
        (
            _PAGE % "index.html" + _OTHER % "/%C3%BC" + _OTHER % "/%c3%bc",
            "two resources are /%c3%bc",
            "",
            "Give each a path of its own",
        ),
        (
            _PAGE % "index.html" + _OTHER % "/b\\r\\nset-cookie: a=b",
            "is '/b\\r\\nset-cookie: a=b'",
            ", resource /b\r\nset-cookie: a=b, key 'path'",
            "Write the path of the URL, starting with /.",
        ),
    ],
)
def test_pages(tmp_path: Path, text: str, what: str, where: str, next_step: str) -> None:
    folder = tmp_path / "sites" / "mine"
    folder.mkdir(parents=True)
    (folder / "page.toml").write_text(text)
    (folder / "index.html").write_text("<!DOCTYPE html><title>t</title>")
    os.mkfifo(folder / "pipe.html")
    file = folder / "page.toml"
    step = next_step.format(folder=folder)
    refused(lambda: pages.load_pages(tmp_path / "sites"), PageError, what, f"{file}{where}", step)


def test_a_page_whose_file_is_a_link_to_itself(tmp_path: Path) -> None:
    folder = tmp_path / "sites" / "mine"
    folder.mkdir(parents=True)
    (folder / "page.toml").write_text(_PAGE % "loop.html")
    (folder / "loop.html").symlink_to("loop.html")
    with pytest.raises(PageError, match=r"key 'source': (cannot be opened|names the missing file).*loop\.html"):
        pages.load_pages(tmp_path / "sites")


def _uppercase(har: Any) -> Any:
    for entry in har["log"]["entries"]:
        entry["request"]["url"] = entry["request"]["url"].replace("https://www.syn.test", "HTTPS://WWW.SYN.TEST:443")
    return har


def _reversed(har: Any) -> Any:
    har["log"]["entries"].reverse()
    return har


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(lambda har: json.dumps(_uppercase(har)).encode(), id="host in capitals, port 443"),
        pytest.param(lambda har: json.dumps(_reversed(har)).encode(), id="entries from the last to the first"),
        pytest.param(
            lambda har: b"".join(gzip.compress(part.encode()) for part in json.dumps(har).partition('"entries"')),
            id="gzip in three members",
        ),
    ],
)
def test_unusual_recordings(tmp_path: Path, written: Callable[[Any], bytes]) -> None:
    file = tmp_path / "site.har"
    file.write_bytes(written(json.loads(contents("pct_one.har"))))
    from_har(file, tmp_path / "sites" / "page")
    page = pages.load_pages(tmp_path / "sites")["page"]
    assert page.host == "www.syn.test"
    assert [resource.key for resource in page.resources] == ["/", "/a%20b.png"]


_EXPORT, _RECORD = (
    "Export the recording again as HAR.",
    "Record the load of a page from its start, with an empty cache.",
)


@pytest.mark.parametrize(
    ("written", "what", "next_step"),
    [
        (
            lambda har: b"onInputData(" + json.dumps(har).encode() + b");",
            "is not JSON (Expecting value: line 1 column 1 (char 0))",
            _EXPORT,
        ),
        (lambda har: json.dumps(har["log"]).encode(), "has no key 'log', so it is not a HAR", _EXPORT),
        (lambda har: gzip.compress(json.dumps(har).encode())[:-9], "is a truncated gzip file", _EXPORT),
        (
            lambda har: json.dumps(har).replace("https://www.syn.test/", "file:///home/me/").encode(),
            "has no document, an HTML response to GET; its requests are: 2 of file:",
            _RECORD,
        ),
    ],
)
def test_recordings_of_no_page(tmp_path: Path, written: Callable[[Any], bytes], what: str, next_step: str) -> None:
    file = tmp_path / "site.har"
    file.write_bytes(written(json.loads(contents("pct_one.har"))))
    refused(lambda: from_har(file, tmp_path / "page"), PageError, what, str(file), next_step)
    assert not (tmp_path / "page").exists()


_LIST = """[[resolver]]
name = "city"
operator = "city"
address = ["198.18.2.53"]
host = "city.test"
transports = { doh = 443 }
path = "/dns-query"
"""
_URL_PATH = "Write it as in the URL, in ASCII, without query, fragment and template, like /dns-query."


@pytest.mark.parametrize(
    ("old", "new", "what", "key", "next_step"),
    [
        (
            "/dns-query",
            "/q\\r\\nx: y",
            "must be a path that begins with a slash, is '/q\\r\\nx: y'",
            "resolver[0].path",
            _URL_PATH,
        ),
        (
            "/dns-query",
            "/dns-query{?dns}",
            "must be a path that begins with a slash, is '/dns-query{?dns}'",
            "resolver[0].path",
            _URL_PATH,
        ),
        ("city.test", "münchen.test", "is not a host name: 'münchen.test'", "resolver[0].host", "Give the ASCII form."),
        (
            "198.18.2.53",
            "fe80::1%eth0",
            "is not the address of one host: 'fe80::1%eth0'",
            "resolver[0].address[0]",
            "Give an IPv4 or IPv6 address, without a port.",
        ),
    ],
)
def test_resolver_lists(tmp_path: Path, old: str, new: str, what: str, key: str, next_step: str) -> None:
    file = tmp_path / "list.toml"
    file.write_text(_LIST.replace(old, new), encoding="utf-8")
    refused(lambda: read([str(file)]), ResolversError, what, f"{file}, key '{key}'", next_step)


@pytest.mark.parametrize("name", ["list.toml", "list.md"])
def test_a_resolver_list_in_utf_16(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(_LIST.encode("utf-16"))
    refused(lambda: read([str(file)]), ResolversError, "is not UTF-8", str(file), _UTF_8)


_AGAIN = "Export the campaign again with `crosslayer export`, or measure a new one with `crosslayer measure`."


def _truncate(folder: Path, _part: Path) -> None:
    (folder / "campaign.json").write_bytes((folder / "campaign.json").read_bytes()[:100])


def _copy(_folder: Path, part: Path) -> None:
    shutil.copy(part, part.with_name("copy of part.parquet"))


def _rename(_folder: Path, part: Path) -> None:
    part.parent.rename(part.parent.with_name("link=elsewhere"))


def _empty(_folder: Path, part: Path) -> None:
    part.write_bytes(b"")


def _leave_a_draft(_folder: Path, part: Path) -> None:
    (part.parent / ".part.parquet.swp").write_bytes(b"draft")


@pytest.mark.parametrize(
    ("damage", "what", "where"),
    [
        (_truncate, "is not JSON: ", "campaign.json"),
        (_copy, "18 observations are there more than once", "dns_exchanges"),
        (_rename, "holds rows of link ", "link=elsewhere"),
        (_empty, "is not a Parquet file (Parquet file size is 0 bytes)", ".parquet"),
    ],
)
def test_datasets(tmp_path: Path, damage: Callable[[Path, Path], None], what: str, where: str) -> None:
    folder = synthetic.write(tmp_path / "dataset", rounds=2)
    damage(folder, next((folder / "dns_exchanges").glob("link=*/*.parquet")))
    with pytest.raises(DatasetError) as caught:
        Dataset.open(folder)
    assert what in caught.value.what
    assert caught.value.where.startswith(str(folder))
    assert where in caught.value.where
    assert caught.value.next_step == _AGAIN


def test_a_dataset_with_the_draft_of_an_editor(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path / "dataset", rounds=2)
    before = Dataset.open(folder).table("dns_exchanges").collect()
    _leave_a_draft(folder, next((folder / "dns_exchanges").glob("link=*/*.parquet")))
    assert Dataset.open(folder).table("dns_exchanges").collect().equals(before)


@pytest.mark.parametrize("option", ["--timeout", "--idle-timeout", "--udp-retransmit", "--probe-idle-after"])
@pytest.mark.parametrize("value", ["nan", "1e300", "-1"])
def test_durations(option: str, value: str) -> None:
    done = CliRunner().invoke(cli, ["stub", "--upstream", "udp://127.0.0.1", option, value, "true"])
    assert done.exit_code == 2
    assert f"Invalid value for '{option}': " in done.output
    assert ("It is not a number. Write it in digits." if value == "nan" else "is not in the range") in done.output


_QUESTION = build_query(Question("www.example.org"), Protocol.DOTCP, ClientSettings())


def _answer(*records: str, rdclass: str = "IN") -> bytes:
    answer = dns.message.make_response(_QUESTION.message)
    answer.answer += [dns.rrset.from_text("www.example.org.", 300, rdclass, "A", record) for record in records]
    return answer.to_wire()


def _in_mixed_case() -> bytes:
    return _answer("192.0.2.1").replace(b"\3www\7example\3org", b"\3WwW\7eXaMpLe\3oRg", 1)


def _pointing_at_itself() -> bytes:
    """An answer whose owner is a pointer to that pointer."""
    end = 12 + len(b"\3www\7example\3org\0") + 4
    header = _QUESTION.wire[:2] + struct.pack("!5H", 0x8180, 1, 1, 0, 0)
    return header + _QUESTION.wire[12:end] + struct.pack("!HHHIH", 0xC000 | end, 1, 1, 300, 4) + bytes(4)


def _signed_by_nobody() -> bytes:
    """A good answer with a TSIG record of a key that the client does not have."""
    wire = bytearray(_answer("192.0.2.1"))
    wire[10:12] = struct.pack("!H", int.from_bytes(wire[10:12]) + 1)
    rdata = b"\x0bhmac-sha256\0" + bytes(6) + struct.pack("!HH", 300, 32) + bytes(32) + bytes(6)
    return bytes(wire) + b"\3key\0" + struct.pack("!HHIH", 250, 255, 0, len(rdata)) + rdata


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        (_in_mixed_case(), None),
        (_answer("192.0.2.1", "192.0.2.1"), None),
        (_answer(), None),
        (_answer(r"\# 4 c0000201", rdclass="HS"), "answer of another name"),
        (_pointing_at_itself(), "malformed"),
        (_signed_by_nobody(), "malformed"),
        (_QUESTION.wire[:2] + b"\x81\x80" + 4 * b"\xff\xff", "malformed"),
    ],
)
def test_dns_messages(wire: bytes, error: str | None) -> None:
    assert check_answer(wire, _QUESTION).error == error
