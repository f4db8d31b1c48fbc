"""The contents of a box as readable text."""

from __future__ import annotations

from crosslayer.box.description import BoxResolver, Description
from crosslayer.box.hosts import plan


def listing(description: Description) -> str:
    """Text with a table of the resolvers, and a line each for zone, origins, middleboxes, clock steps and NAT."""
    addresses = plan(description).addresses
    rows = [("resolver", "address", "RTT", "make", "transports", "peculiarities")]
    for resolver in description.resolver:
        rtt = "/".join(f"{site.rtt_ms:g}" for site in resolver.site) or f"{resolver.rtt_ms:g}"
        about = "; ".join(peculiarities(resolver))
        transports = " ".join(resolver.transports)
        rows.append((resolver.name, " ".join(addresses[resolver.name]), f"{rtt} ms", resolver.make, transports, about))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    zone, client = description.zone, description.network
    lines += ["", f"zone {zone.name}: every name exists; its server is {zone.rtt_ms:g} ms behind each resolver"]
    lines += [f"web origin {origin.name}: {origin.rtt_ms:g} ms" for origin in description.origin]
    lines += [f"blocked: {entry}" for entry in client.blocked]
    for interception in client.interception:
        of = ", ".join(interception.resolvers) or "every address"
        lines.append(f"intercepted: {', '.join(interception.transports)} to {of}")
    lines += [f"clock: set by {step.by_s:+g} s at {step.at_s:g} s" for step in description.clock_step]
    if client.nat is not None:
        timeout = (
            "never forgets" if client.nat.udp_timeout_s is None else f"forgets UDP after {client.nat.udp_timeout_s:g} s"
        )
        lines.append(f"NAT: {timeout}" + "".join(f"; new address at {at:g} s" for at in client.nat.address_changes_s))
    return "\n".join(lines)


def peculiarities(resolver: BoxResolver) -> list[str]:
    """Properties of a resolver that differ from the defaults, each as a short text."""
    several = f"{resolver.caches} caches" if resolver.caches > 1 else ""
    sites = f"sites {', '.join(site.name for site in resolver.site)}" if resolver.site else ""
    changes = [f"RTT {change.rtt_ms:g} ms from {change.at_s:g} s" for change in resolver.path_change]
    certificate = "" if resolver.certificate == "good" else f"certificate: {resolver.certificate}"
    alpn = "" if resolver.doq_alpn == "doq" else f"DoQ is {resolver.doq_alpn}"
    idle = "" if resolver.idle_timeout_s == 30 else f"closes idle connections after {resolver.idle_timeout_s:g} s"
    limit = ""
    if resolver.rate_limit is not None:
        limit = f"{resolver.rate_limit.answer} above {resolver.rate_limit.queries_per_s:g} queries/s"
    stop = ""
    if resolver.asks_to_stop is not None:
        stop = f"asks to stop after {resolver.asks_to_stop.after_queries} queries ({resolver.asks_to_stop.answer})"
    filtered = f"NXDOMAIN for {', '.join(resolver.filter)}" if resolver.filter else ""
    ipv6 = "broken IPv6" if resolver.broken_ipv6 else ""
    dead = "dead" if resolver.dead else ""
    return [
        text for text in (several, sites, *changes, certificate, alpn, idle, limit, stop, filtered, ipv6, dead) if text
    ]
