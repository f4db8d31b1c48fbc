"""The method of a campaign: a record of its programs, clock and code for `campaign.json` and the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crosslayer.vocabulary import BROWSERS

if TYPE_CHECKING:
    from crosslayer.campaign.dataset import Campaign

_CLIENTS = {name: browser.title for name, browser in BROWSERS.items()} | {"libcurl": "libcurl"}
"""Names of the programs that load pages, by their keys in `versions`."""
_SHORT = 7
"""Number of digits of a shortened hash."""


def method_of(campaign: Campaign) -> dict[str, str]:
    """Make the record of a campaign's method from its versions, revision and plan.

    Keys are code, clock, kernel, link, browser, navigation and server; keys of unknown values are left out. `export`
    stores the record. If a dataset has no record, `Campaign.read` makes it.
    """
    versions = {name: str(version) for name, version in campaign.versions.items()}
    clients = {name: title for name, title in _CLIENTS.items() if name in versions} if _loads_pages(campaign) else {}
    record = {
        "code": _code(campaign),
        "clock": {"virtual": "virtual time", "wall": "real time"}[campaign.clock],
        "kernel": _kernel(campaign, versions),
        "link": ", kernel ".join(part for part in (campaign.backend, versions.get("link_kernel", "")) if part),
        "browser": ", ".join(f"{title} {versions[name]}" for name, title in clients.items()),
        "navigation": ", ".join(f"{title}: {_navigation(name, versions)}" for name, title in clients.items()),
        "server": ", quic-go ".join(versions[name] for name in ("server", "quic-go") if name in versions),
    }
    return {name: text for name, text in record.items() if text}


def _loads_pages(campaign: Campaign) -> bool:
    return campaign.rows.get("page_loads", 0) > 0


def _code(campaign: Campaign) -> str:
    state = {True: "", False: " with uncommitted changes", None: ""}[campaign.git_clean]
    return campaign.git_revision + state if campaign.git_revision else ""


def _kernel(campaign: Campaign, versions: dict[str, str]) -> str:
    """Kernel that measured the campaign: the guest's kernel, or without guests the machine's kernel."""
    if "guest_kernel" not in versions:
        return f"Linux {campaign.host.kernel}"
    patch = versions.get("guest_kernel_patch_sha256", "")[:_SHORT]
    return f"Linux {versions['guest_kernel']} of the guest" + (f", patch {patch}" if patch else "")


def _navigation(client: str, versions: dict[str, str]) -> str:
    """Interface by which a page load is started in a client, with its version if known."""
    driver = BROWSERS[client].driver if client in BROWSERS else ""
    if client == "libcurl":
        return "its own call"
    return f"ChromeDriver {versions[driver]}" if driver in versions else "WebDriver BiDi"
