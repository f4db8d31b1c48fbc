"""Claims of this study: its conclusions as falsifiable statements, judged on its campaign."""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, median
from crosslayer.claims.rows import Source, Sources, observed_from
from crosslayer.claims.rules import Bound, Cause, Number, by_id, claim
from crosslayer.claims.tolerances import IN_RTTS, Tolerance
from crosslayer.studies.fallback.cases import CASES
from crosslayer.studies.fallback.timers import TIMERS, delays, rows_of
from crosslayer.vocabulary import Browser

_TIMER = Tolerance(at_least=1.3)
"""Tolerance of a client's timer that is measured between two packets, ms.

Clients round timers up to whole ms, which adds up to 1 ms. The kernel adds 0.1 %, i.e. 0.3 ms for 300 ms.
"""
_OF_BROWSER = Tolerance(at_least=2.0)
"""Tolerance of a timer that is a difference of two times of the browser's clock, ms."""
_STALL = 500.0
"""Shortest wait that counts as a stall, ms: less than `LATE_MS`, more than every resolution delay."""


def _response(client: Browser, condition: str) -> Source:
    rows = (pl.col("browser") == client.value) & pl.col("error").is_null() & (pl.col("condition") == condition)
    return Source("page_loads", rows, pl.col("response_start_ms"))


_RESPONSES = {
    name if client is Browser.CHROMIUM else f"{client.value} {name}": _response(client, name)
    for client in Browser
    for name, case in CASES.items()
    if client is not Browser.CURL or case.for_curl
}
"""Start of the response by client and case. Series of Chromium have no client name."""

_DELAYS = {series: Source("attempts", rows_of(timer), pl.col("started_ms")) for series, timer in TIMERS.items()}
SOURCES: Sources = {series: (source,) for series, source in (_RESPONSES | _DELAYS).items()}


def observed(page_loads: pl.LazyFrame, attempts: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Start of the response by case, and delays between attempts, ms."""
    series = _RESPONSES | {timer: Source("delays", pl.col("series") == timer, pl.col("value")) for timer in TIMERS}
    # Computed once: every series filters this table, which takes one query per timer.
    tables = {"page_loads": page_loads, "delays": delays(attempts).collect().lazy()}
    return observed_from(series, tables, metrics.nominal_rtts(link_checks))


def later(case: str, other: str, *, in_rtts: bool = False) -> Measure:
    """How much later the response starts in `case` than in `other`, in ms or in multiples of the RTT.

    The value is the median of the differences within rounds.
    """
    return median({case: 1.0, other: -1.0}, in_rtts=in_rtts)


_OWN_DELAY = Cause(
    "Chromium uses another delay: its first SYN leaves {0} ms after its first QUIC packet (FALL1).",
    (median("chromium quic-tcp"),),
)
_OWN_FAMILY_DELAY = Cause(
    "Chromium uses another delay: its first SYN over IPv4 leaves {0} ms after its first SYN over IPv6 (FALL8).",
    (median("chromium ipv6-ipv4"),),
)
_WAITS_FOR_AAAA = Cause(
    "Chromium waits for the AAAA answer, which is 600 ms late: it connects {0} ms after the A answer.",
    (median("chromium late-aaaa"),),
)
_FIRST_ANSWER = Cause(
    "curl connects to the first address that it learns, {0} ms after it learns it.", (median("curl late-a"),)
)
_FROM_THE_LOOKUP = Cause(
    "curl counts its delay from the start of the lookup: TCP starts {0} ms after the lookup began.",
    (median("curl lookup-tcp"),),
)
_FAST_FALLBACK = Cause(
    "Firefox uses another delay, `network.dns.httpssvc.http3_fast_fallback_timeout`: {0} ms (FALL16).",
    (median("firefox quic-tcp"),),
)
_ONE_LOOKUP = Cause(
    "Firefox queries both address families by one call of getaddrinfo, which returns after the later answer: {0} "
    "ms after the A answer.",
    (median("firefox late-aaaa"),),
)

CLAIMS = Claims(
    checks=by_id(
        claim(
            "FALL1",
            "On a first visit Chromium sends its first SYN 300 ms after its first QUIC packet",
            median("chromium quic-tcp"),
            Number(published=300.0, tolerance=_TIMER, unit="ms"),
            remark="The attempt delay that arXiv 2412.00263 reports of Chrome.",
        ),
        claim(
            "FALL2",
            "Chromium waits for QUIC for 250 ms, as draft-ietf-happy-happyeyeballs-v3 recommends",
            median("chromium quic-tcp"),
            Number(published=250.0, tolerance=_TIMER, unit="ms"),
        ),
        claim(
            "FALL3",
            "Where the path rejects QUIC by ICMP, a first visit takes only one round-trip longer, because TCP and TLS "
            "need one more than QUIC",
            later("first-udp-rejected", "first", in_rtts=True),
            Number(published=1.0, tolerance=IN_RTTS, unit="RTT"),
        ),
        claim(
            "FALL4",
            "A first visit takes 300 ms longer on a path that drops QUIC than on a path that rejects it",
            later("first-udp-dropped", "first-udp-rejected"),
            Number(published=300.0, tolerance=_OF_BROWSER, unit="ms"),
        ),
        claim(
            "FALL5",
            "A visitor who returns with early data pays four seconds where the path now drops QUIC",
            later("return-udp-dropped", "return-udp-rejected"),
            Bound(above=3900.0, unit="ms"),
        ),
        claim(
            "FALL6",
            "The second page takes 300 ms longer on a path that drops QUIC than on a path that rejects it",
            later("second-udp-dropped", "second-udp-rejected"),
            Number(published=300.0, tolerance=_OF_BROWSER, unit="ms"),
        ),
        claim(
            "FALL7",
            "Dropped 0-RTT packets cost a returning visitor more than two round-trips",
            later("return-0-rtt-dropped", "return", in_rtts=True),
            Bound(above=2.0, unit="RTT"),
        ),
        claim(
            "FALL8",
            "Chromium tries IPv4 300 ms after IPv6 where no SYN is answered",
            median("chromium ipv6-ipv4"),
            Number(published=300.0, tolerance=_TIMER, unit="ms"),
            remark="The attempt delay that arXiv 2412.00263 reports of Chrome.",
        ),
        claim(
            "FALL9",
            "Chromium tries IPv4 after the 250 ms that draft-ietf-happy-happyeyeballs-v3 recommends",
            median("chromium ipv6-ipv4"),
            Number(published=250.0, tolerance=_TIMER, unit="ms"),
        ),
        claim(
            "FALL10",
            "With an A answer Chromium waits 50 ms for AAAA, as draft-ietf-happy-happyeyeballs-v3 recommends",
            median("chromium late-aaaa"),
            Number(published=50.0, tolerance=_TIMER, unit="ms"),
        ),
        claim(
            "FALL11",
            "A late A answer stalls Chromium, although the AAAA answer is there",
            median("chromium late-a"),
            Bound(above=_STALL, unit="ms"),
            remark="arXiv 2412.00263 reports it of Chrome and Firefox.",
        ),
        claim(
            "FALL12",
            "A late A answer stalls curl",
            median("curl late-a"),
            Bound(above=_STALL, unit="ms"),
        ),
        claim(
            "FALL13",
            "curl tries IPv4 200 ms after IPv6; this delay is the default in its manual",
            median("curl ipv6-ipv4"),
            Number(published=200.0, tolerance=_TIMER, unit="ms"),
        ),
        claim(
            "FALL14",
            "curl tries HTTP/2 200 ms after its first QUIC packet",
            median("curl quic-tcp"),
            Number(published=200.0, tolerance=_TIMER, unit="ms"),
        ),
        claim(
            "FALL15",
            "Where the path drops QUIC, a first request costs curl less than Chromium",
            median({"first-udp-dropped": 1.0, "curl first-udp-dropped": -1.0}),
            Bound(above=100.0, unit="ms"),
        ),
        claim(
            "FALL16",
            "Firefox sends its first SYN 50 ms after its first QUIC packet",
            median("firefox quic-tcp"),
            Number(published=50.0, tolerance=_TIMER, unit="ms"),
            remark="Its preference network.dns.httpssvc.http3_fast_fallback_timeout.",
        ),
        claim(
            "FALL17",
            "Firefox waits for QUIC for 250 ms, as draft-ietf-happy-happyeyeballs-v3 recommends",
            median("firefox quic-tcp"),
            Number(published=250.0, tolerance=_TIMER, unit="ms"),
        ),
        claim(
            "FALL18",
            "If Alt-Svc announced HTTP/3, Firefox sends its first SYN 100 ms after its first QUIC packet",
            median("firefox alt-svc-quic-tcp"),
            Number(published=100.0, tolerance=_TIMER, unit="ms"),
            remark="Its preference network.http.http3.backup_timer_delay.",
        ),
        claim(
            "FALL19",
            "Firefox tries IPv4 after the 250 ms that draft-ietf-happy-happyeyeballs-v3 recommends",
            median("firefox ipv6-ipv4"),
            Number(published=250.0, tolerance=_TIMER, unit="ms"),
        ),
        claim(
            "FALL20",
            "With an A answer Firefox waits 50 ms for AAAA, as draft-ietf-happy-happyeyeballs-v3 recommends",
            median("firefox late-aaaa"),
            Number(published=50.0, tolerance=_TIMER, unit="ms"),
        ),
        claim(
            "FALL21",
            "A late A answer stalls Firefox, although the AAAA answer is there",
            median("firefox late-a"),
            Bound(above=_STALL, unit="ms"),
            remark="arXiv 2412.00263 reports it of Chrome and Firefox.",
        ),
        claim(
            "FALL22",
            "Where the path drops QUIC, a first visit costs Firefox less than Chromium",
            median({"first-udp-dropped": 1.0, "firefox first-udp-dropped": -1.0}),
            Bound(above=100.0, unit="ms"),
        ),
        claim(
            "FALL23",
            "A first visit in Firefox gains nothing if the path rejects QUIC by ICMP instead of dropping it",
            median({"firefox first-udp-dropped": 1.0, "firefox first-udp-rejected": -1.0}),
            Number(published=0.0, tolerance=_OF_BROWSER, unit="ms"),
        ),
        claim(
            "FALL24",
            "A visitor who returns to a path that now drops QUIC waits 3 s longer in Chromium than in Firefox",
            median({"return-udp-dropped": 1.0, "firefox return-udp-dropped": -1.0}),
            Bound(above=3000.0, unit="ms"),
        ),
        claim(
            "FALL25",
            "Firefox with Happy Eyeballs v3 starts TCP 250 ms after QUIC, as the draft recommends",
            median("firefox-happy-eyeballs quic-tcp"),
            Number(published=250.0, tolerance=_TIMER, unit="ms"),
        ),
        claim(
            "FALL26",
            "With an A answer Firefox with Happy Eyeballs v3 waits 50 ms for AAAA, as the draft recommends",
            median("firefox-happy-eyeballs late-aaaa"),
            Number(published=50.0, tolerance=_TIMER, unit="ms"),
        ),
        claim(
            "FALL27",
            "A late A answer stalls Firefox with Happy Eyeballs v3",
            median("firefox-happy-eyeballs late-a"),
            Bound(above=_STALL, unit="ms"),
        ),
        claim(
            "FALL28",
            "Where the path drops QUIC, Happy Eyeballs v3 costs a first visit in Firefox 200 ms",
            median({"firefox-happy-eyeballs first-udp-dropped": 1.0, "firefox first-udp-dropped": -1.0}),
            Number(published=200.0, tolerance=_OF_BROWSER, unit="ms"),
            remark="It waits 250 ms instead of 50.",
        ),
        causes={
            _FAST_FALLBACK: "FALL17",
            _ONE_LOOKUP: "FALL20",
            _OWN_DELAY: "FALL2",
            _OWN_FAMILY_DELAY: "FALL9",
            _WAITS_FOR_AAAA: "FALL10",
            _FIRST_ANSWER: "FALL12",
            _FROM_THE_LOOKUP: "FALL14",
        },
    ),
    observed=observed,
    tables=("page_loads", "attempts", "link_checks"),
    sources=SOURCES,
)
