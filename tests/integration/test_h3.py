"""crosslayer's page loader, with the real server, makes the same requests and receives the same bytes as Chromium.

This file is also the program that loads the pages once in private namespaces; the tests read its output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from crosslayer import dns, pages
from crosslayer.browser import find_browser, launch
from crosslayer.dns.quic import DoQClient
from crosslayer.h3 import PageClient
from crosslayer.links import load_profiles
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.server import Event, QueryEvent, RequestEvent, Server
from crosslayer.testbed.testbed import Testbed

PAGES = ("example.org", "wikipedia.org", "instagram.com")
SPECS = pages.load_pages(pages.find_spec_dir())


def requests(events: Iterable[Event], host: str) -> list[dict[str, Any]]:
    """Requests of a page in the server log, in order of arrival."""
    of_page = [event for event in events if isinstance(event, RequestEvent) and event.host == host]
    return [
        {
            "path": e.path,
            "bytes": e.bytes,
            "status": e.status,
            "arrived": e.time_ns,
            "done": e.done_ns,
            "from": e.remote,
        }
        for e in sorted(of_page, key=lambda event: event.time_ns)
    ]


def other_connections(server: Server, addresses: dict[str, str], served: bool) -> int:
    """Number of datagrams that an answered DNS connection sends while a page is loaded on another connection."""
    doq = DoQClient(dns.Resolver(network.SERVER_ADDRESS, "localhost", server.ca_file))
    query = dns.build_query(dns.Question("www.instagram.com"), dns.Protocol.DOQ, doq.settings)
    page = PageClient(dns.Resolver(addresses["www.instagram.com"], "www.instagram.com", server.ca_file))
    with doq, page:
        doq.connect(query)
        doq.query(query)
        sent: list[bytes] = []
        of_core = doq._core.datagrams

        def datagrams(now: float) -> list[bytes]:
            made = of_core(now)
            sent.extend(made)
            return made

        doq._core.datagrams = datagrams  # type: ignore[method-assign]
        page.companions = (doq,) if served else ()
        page.connect()
        page.finish(page.begin(SPECS["instagram.com"]))
        return len(sent)


def measure() -> dict[str, Any]:
    specs = [SPECS[name] for name in (*PAGES, "shop", "warmup")]
    results: dict[str, Any] = {"loader": {}, "chromium": {}, "queries": {}}
    resolved = [spec.name for spec in specs]
    with Testbed("plain") as testbed, testbed.serve(SPECS, resolved=resolved) as (server, addresses):
        testbed.set_link(load_profiles()["local"])
        for page in specs[:3]:
            server.events()
            with PageClient(dns.Resolver(addresses[page.host], "localhost", server.ca_file)) as client:
                query = dns.build_query(dns.Question(page.host), dns.Protocol.DOH3, client.settings)
                client.connect(query)
                answer = dns.check_answer(client.query(query), query)
                client.finish(client.begin(page))
            events = server.events()
            results["loader"][page.name] = requests(events, page.host)
            asked = [(e.remote, e.name) for e in events if isinstance(e, QueryEvent)]
            results["queries"][page.name] = [asked, answer.records == (addresses[page.host],)]
        with PageClient(dns.Resolver(addresses["www.example.org"], "www.example.org", server.ca_file)) as client:
            client.connect()
            elsewhere = replace(SPECS["example.org"], host="www.nowhere.example")
            for name, page in (("origins", SPECS["shop"]), ("misdirected", elsewhere)):
                try:
                    client.finish(client.begin(page))
                except dns.DnsError as fault:
                    results[name] = fault.what
        results["acknowledged"] = [other_connections(server, addresses, served) for served in (False, True)]
        browser = launch(
            find_browser(),
            folder=testbed.folder / "browser",
            addresses=addresses,
            certificates=server.certificates,
        )
        with browser:
            for page in specs[:3]:
                server.events()
                browser.load(
                    page.host, prime_host=page.aliases[0], close_connections=lambda: server.close_connections("h3")
                )
                results["chromium"][page.name] = requests(server.events(), page.host)
    return results


@pytest.fixture(scope="module")
def measured(browser_machine: None) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.integration.test_h3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


@pytest.mark.parametrize("page", PAGES)
def test_the_loader_asks_for_what_chromium_asks_for(measured: dict[str, Any], page: str) -> None:
    loader, chromium = (
        sorted((request["path"], request["bytes"], request["status"]) for request in measured[client][page])
        for client in ("loader", "chromium")
    )
    assert loader == chromium
    assert [path for path, _, _ in loader] == sorted(resource.path for resource in SPECS[page].resources)


@pytest.mark.parametrize("client", ["loader", "chromium"])
@pytest.mark.parametrize("page", PAGES)
def test_both_ask_in_the_order_that_the_page_determines(measured: dict[str, Any], client: str, page: str) -> None:
    by_path = {request["path"]: request for request in measured[client][page]}
    assert measured[client][page][0]["path"] == "/"
    for resource in SPECS[page].resources:
        if resource.after:
            assert by_path[resource.path]["arrived"] > by_path[resource.after]["done"]
    pictures = [request for path, request in by_path.items() if path.startswith("/images/")]
    if page == "instagram.com":  # the last script requests the pictures, after all style sheets and other scripts
        code = [request for path, request in by_path.items() if path.startswith(("/scripts/", "/styles/"))]
        assert len(code) == 9
        assert min(picture["arrived"] for picture in pictures) > max(request["done"] for request in code)


@pytest.mark.parametrize("page", PAGES)
def test_name_and_page_come_on_one_connection(measured: dict[str, Any], page: str) -> None:
    [[[remote, name]], answered] = measured["queries"][page]
    assert name == f"{SPECS[page].host}."
    assert answered
    assert {request["from"] for request in measured["loader"][page]} == {remote}


def test_another_connection_is_served_while_a_page_is_loaded(measured: dict[str, Any]) -> None:
    alone, served = measured["acknowledged"]
    assert alone == 0
    assert served > 0  # its answer is acknowledged


def test_what_is_not_the_page_is_a_fault(measured: dict[str, Any]) -> None:
    assert measured["origins"] == "shop has origins on other connections"
    assert measured["misdirected"] == "http status 421 for /"


if __name__ == "__main__":
    namespaces.enter([sys.executable, "-m", "tests.integration.test_h3"])
    print(json.dumps(measure()))
