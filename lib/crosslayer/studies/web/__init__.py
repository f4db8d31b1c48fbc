"""A browser that resolves by itself over each transport (Kosek et al., IMC 2022, section 3.2)."""

from dataclasses import dataclass
from typing import Literal

from crosslayer.campaign.plan import Plan
from crosslayer.studies.single_query import IMC22
from crosslayer.study import Section, Study
from crosslayer.vocabulary import Browser


@dataclass(frozen=True)
class Options:
    """Options of this study."""

    https_records: bool = False
    """Tell the browser of HTTP/3 by HTTPS records (RFC 9460) instead of a switch."""
    resolver: Literal["stub", "browser"] = "stub"
    """Who asks: the stub that resolv.conf names; or the browser by itself, over DoH and DoH3 alone. Its connection
    stands when the page is asked for, as a user's does."""
    connections: Literal["one", "paper"] = "one"
    """The stub's towards the resolver: one, or as the proxy of the paper had them, over DoTCP one for each query and
    over DoT an idle one or another (dnsproxy of 2022, `upstream_pool.go`)."""


_LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
_FURTHER_LINKS = ("asia", "fiber-loss", "4g-loss")
"""A vantage point that the paper names with a page, and what a query over UDP waits longest for."""
_PAGES = (
    "login-form", "encyclopedia", "social-network", "shop", "professional-network", "device-maker", "search-engine",
    "news-portal", "video-portal", "software-maker",
)  # fmt: skip
_QUICK_PAGES = ("login-form", "social-network", "search-engine", "video-portal", "software-maker")
_WHOLE = Plan(study="web", links=(*_LINKS, *_FURTHER_LINKS), pages=_PAGES, options=Options(connections="paper"))

STUDY = Study(
    name="web",
    package=__name__,
    paper=IMC22,
    lead="A browser that resolves by itself over each transport, on pages with one lookup and with many.",
    sections=(
        Section(
            "web_performance",
            "Web performance",
            "What a user waits for when the browser itself resolves one name or many over each transport "
            "(Kosek et al., IMC 2022, section 3.2).",
        ),
    ),
    options=Options,
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=("fiber",), pages=_QUICK_PAGES[::4]),
        "quick": _WHOLE.resized(rounds=6, links=("fiber", "4g"), pages=_QUICK_PAGES),
        "paper": _WHOLE.resized(rounds=100),
    },
    headlines={
        "I123": "PLT of pages with one lookup, gain of DoQ over DoH",
        "I130": "PLT of pages with many lookups, loss of DoQ over DoUDP",
    },
    primes_alias=False,
    browsers=(Browser.CHROMIUM, Browser.FIREFOX),
)
