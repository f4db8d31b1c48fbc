"""Page loads in a browser that resolves names over each transport (Kosek et al., IMC 2022, section 3.2)."""

from dataclasses import dataclass
from typing import Literal

from crosslayer.campaign.plan import Plan
from crosslayer.decode import FieldError
from crosslayer.studies.single_query import IMC22
from crosslayer.study import Section, Study
from crosslayer.vocabulary import Browser


@dataclass(frozen=True)
class Options:
    """Options of the studies `web` and `composition`."""

    https_records: bool = False
    """Whether HTTPS records (RFC 9460) announce HTTP/3.

    If false, a command-line switch of Chromium or a preference of Firefox makes the browser use HTTP/3.
    """
    resolver: Literal["stub", "browser"] = "stub"
    """Client that queries the resolver: the stub of resolv.conf, or the browser itself.

    The browser supports DoH and DoH3 only. Its DNS connection is already open when the measured load begins, as in a
    browser that is in use.
    """
    connections: Literal["one", "paper"] = "one"
    """Connections of the stub to the resolver.

    `one`: one connection for all queries. `paper`: as the paper's proxy, dnsproxy of 2022 (`upstream_pool.go`). It
    opens a connection for each query over DoTCP, and keeps a pool of connections over DoT.
    """


@dataclass(frozen=True)
class WebOptions(Options):
    """Options of the study `web`."""

    resolver_like: str = ""
    """Measured resolver that is emulated, as `DATASET:RESOLVER[@VANTAGE]`; empty for none.

    The emulated resolver has the RTTs and answer times of RESOLVER in DATASET, a dataset of `crosslayer compare`. Each
    round draws one of the RTTs. If the option is empty, the stub queries the server of the pages.
    """
    live_resolvers: tuple[str, ...] = ()
    """Resolvers for loads of live pages, each as name and address; `crosslayer measure --sites` sets them."""

    def __post_init__(self) -> None:
        if self.resolver_like and self.resolver != "stub":
            raise FieldError(
                "needs the stub as resolver", key="resolver_like", next_step='Set resolver = "stub", or leave it out.'
            )


_LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
_FURTHER_LINKS = ("asia", "fiber-loss", "4g-loss")
"""Further links: one for Asia (a claim of the paper is about loads of one page there), and two that lose packets."""
_PAGES = (
    "login-form", "encyclopedia", "social-network", "shop", "professional-network", "device-maker", "search-engine",
    "news-portal", "video-portal", "software-maker",
)  # fmt: skip
_QUICK_PAGES = ("login-form", "social-network", "search-engine", "video-portal", "software-maker")
_WHOLE = Plan(study="web", links=(*_LINKS, *_FURTHER_LINKS), pages=_PAGES, options=WebOptions(connections="paper"))

STUDY = Study(
    name="web",
    package=__name__,
    paper=IMC22,
    lead="A browser that resolves by itself over each transport, on pages with one lookup and with many.",
    sections=(
        Section(
            "web_performance",
            "Web performance",
            "Page loads of a browser that resolves one name or many over each transport "
            "(Kosek et al., IMC 2022, section 3.2).",
        ),
    ),
    options=WebOptions,
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
