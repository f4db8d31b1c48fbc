"""Reads and checks the file of URLs that a user wants to load, before any packet is sent."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from crosslayer.campaign.errors import CampaignError
from crosslayer.decode import read_text
from crosslayer.dns.model import is_host_name
from crosslayer.testbed import stop_list

_LOCAL = "localhost"


@dataclass(frozen=True, slots=True)
class ListedSite:
    """A page of the user's file: its URL and the host name of this URL."""

    url: str
    host: str

    @property
    def name(self) -> str:
        """Name of the page in the dataset: the URL without `https://` and without a final slash."""
        return self.url.removeprefix("https://").removesuffix("/")


def read_sites(path: Path) -> list[ListedSite]:
    """Pages of a file with a URL in each line; `#` begins a comment. `CampaignError` for the first invalid line."""
    sites: dict[ListedSite, int] = {}
    for number, line in enumerate(read_text(path, CampaignError).splitlines(), start=1):
        if not (text := line.partition(" #")[0].strip()) or text.startswith("#"):
            continue
        try:
            site = _site(text)
        except _SiteError as error:
            what, next_step = error.args
            raise CampaignError(what, where=f"{path}, line {number}", next_step=next_step) from None
        if (first := sites.setdefault(site, number)) != number:
            raise CampaignError(
                f"names {site.name} again, after line {first}",
                where=f"{path}, line {number}",
                next_step="Name each page once.",
            )
    if not sites:
        raise CampaignError("names no page", where=str(path), next_step="Write a URL in each line.")
    return list(sites)


class _SiteError(Exception):
    """Error of a line; its arguments say what is wrong and what to do."""


def _site(text: str) -> ListedSite:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError as error:
        raise _SiteError(f"is no URL ({error})", "Write it as in the browser's address bar.") from None
    if url.scheme not in ("http", "https"):
        raise _SiteError(f"is no URL of http or https: {text!r}", "Write it like https://www.example.org/.")
    if url.username is not None:
        raise _SiteError("has credentials in its URL, which would be in the data", "Leave them out.")
    host = (url.hostname or "").removesuffix(".")
    if _is_address(host):
        raise _SiteError(f"names the address {host}, which needs no lookup", "Write the name of the server.")
    if host == _LOCAL or host.endswith(f".{_LOCAL}"):
        raise _SiteError(f"names {host}, which needs no lookup", "Write the name of a server.")
    if not is_host_name(host):
        raise _SiteError(f"has no host name in ASCII: {text!r}", "Write an international name in its form xn--.")
    if not text.isascii() or any(character.isspace() for character in text):
        raise _SiteError("has a character that no URL has", "Encode it with %.")
    if (reason := stop_list.load().reason_of_host(host)) is not None:
        raise _SiteError(f"is on the stop list ({reason})", f"Leave it out. Your list is {stop_list.user_file()}.")
    usual = port in (None, 443 if url.scheme == "https" else 80)
    authority = host if usual else f"{host}:{port}"
    return ListedSite(SplitResult(url.scheme, authority, url.path or "/", url.query, "").geturl(), host)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return all(part.isdigit() for part in host.split(".")) and bool(host)  # browsers read these as IPv4 addresses
    return True
