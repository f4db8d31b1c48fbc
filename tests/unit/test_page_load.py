"""What is taken from a browser's timing entries."""

from __future__ import annotations

from crosslayer.browser.browser import _page_load

RAW = {"timeOrigin": 0.0, "navigation": {}, "paint": []}


def test_the_icon_that_a_browser_requests_by_itself_is_no_resource() -> None:
    entries = [
        {"name": "https://www.a.example/favicon.ico", "initiatorType": "other"},
        {"name": "https://www.a.example/favicon.ico", "initiatorType": "img"},
        {"name": "https://www.a.example/a.js", "initiatorType": "other"},
    ]
    assert _page_load(RAW | {"resources": entries}, 0.0, True).resources == tuple(entries[1:])
