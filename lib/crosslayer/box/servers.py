"""crosslayer's own servers in a box: resolvers, interceptors, the authoritative server and web origins."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Self

from crosslayer import resources
from crosslayer.box.description import TRANSPORTS, BoxResolver, Description, Origin, Transport
from crosslayer.box.errors import BoxStartError
from crosslayer.box.hosts import BoxHost
from crosslayer.process import Process
from crosslayer.testbed import network
from crosslayer.testbed.certificates import Authority, Certificates, make_certificates
from crosslayer.testbed.server import corefile_text

_EXPIRED = timedelta(days=60)


class BoxServer(Process):
    """A running server of crosslayer on a host of the box; `BoxServer.start` makes it."""

    name = "a server of the box"
    fault = BoxStartError
    ready_timeout_s = 60.0

    @classmethod
    def start(cls, host: BoxHost, folder: Path, corefile: str) -> Self:
        """Start the server in the host's namespace. This method does not wait for its listeners; `ready` does."""
        with cls.writing(folder):
            (folder / "Corefile").write_text(corefile, encoding="utf-8")
        program = str(resources.locate("server").path)
        spawn = partial(network.spawn, host.namespace)
        server = cls(spawn, [program, "-conf", str(folder / "Corefile")], folder / "log", cwd=folder)
        server._control_path = folder / "control"
        return server

    def ready(self) -> None:
        """Wait until every listener is bound.

        `BoxStartError`, with the server's last log lines, if the server ends or its listeners are not bound in time.
        """
        self.connect(self._control_path)

    _control_path: Path


def certificates_of(
    resolver: BoxResolver, host_name: str, addresses: Iterable[str], authority: Authority, folder: Path
) -> Certificates:
    """Create the certificate that a resolver presents, with the fault that its description names."""
    own = Authority() if resolver.certificate == "other-ca" else authority
    age = _EXPIRED if resolver.certificate == "expired" else timedelta(0)
    if resolver.certificate == "other-name":
        return make_certificates(folder, ["other.invalid"], [], authority=own, age=age)
    return make_certificates(folder, [host_name], addresses, authority=own, age=age)


def resolver_corefile(
    resolver: BoxResolver, host: BoxHost, certificates: Certificates, folder: Path, *, truth: Path, upstream: str
) -> str:
    """Corefile of a resolver of the make `crosslayer`."""
    properties = {
        "truth": f'"{truth}"',
        "resolver": resolver.name,
        "site": host.site or resolver.name,
        "cache": "on",
        **({"filter": ",".join(resolver.filter)} if resolver.filter else {}),
    }
    if resolver.rate_limit is not None:
        properties |= {"rate": f"{resolver.rate_limit.queries_per_s:g}", "limit": resolver.rate_limit.answer}
    if resolver.asks_to_stop is not None:
        properties |= {"stop": resolver.asks_to_stop.answer, "stop_after": str(resolver.asks_to_stop.after_queries)}
    own = {"idle_timeout": f"{round(resolver.idle_timeout_s * 1000)}ms"}
    if resolver.doq_alpn != "doq":
        own["doq_alpn"] = resolver.doq_alpn
    return _corefile(resolver.transports, certificates, folder, properties, own, upstream=upstream)


def authority_corefile(zone: Path, certificates: Certificates, folder: Path, *, truth: Path) -> str:
    """Corefile of the authoritative server."""
    properties = {"truth": f'"{truth}"', "resolver": "authority", "cache": "off"}
    return _corefile(["doudp", "dotcp"], certificates, folder, properties, {}, zone=zone)


def interceptor_corefile(host: BoxHost, certificates: Certificates, folder: Path, *, truth: Path, upstream: str) -> str:
    """Corefile of a middlebox that answers instead of resolvers, over every transport and with a cache."""
    properties = {"truth": f'"{truth}"', "resolver": host.name, "site": host.name, "cache": "on"}
    return _corefile(tuple(TRANSPORTS), certificates, folder, properties, {}, upstream=upstream)


def origin_corefile(origin: Origin, certificates: Certificates, folder: Path, *, truth: Path) -> str:
    """Write the page of a web origin into the folder and return the origin's Corefile."""
    page = folder / "pages" / "page"
    page.mkdir(parents=True)
    body = f"<!doctype html>\n<title>{origin.name}</title>\n<p>{origin.name}\n".encode()
    (page / "index.html").write_bytes(body)
    resource = {"path": "/", "file": "index.html", "content_type": "text/html; charset=utf-8", "wire_bytes": len(body)}
    manifest = {"page": "page", "host": origin.name, "resources": [resource]}
    (page / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    zone = folder / "zone"
    zone.write_text("$ORIGIN .\n@ 300 IN SOA . . 1 1 1 1 1\n", encoding="utf-8")
    box = {"truth": f'"{truth}"', "resolver": origin.name, "cache": "off"}
    own = {"pages": f'"{page.parent}"', "events": f'"{folder / "events"}"'}
    return _corefile(["doh", "doh3"], certificates, folder, box, own, zone=zone)


def _corefile(
    transports: Iterable[Transport],
    certificates: Certificates,
    folder: Path,
    box: Mapping[str, str],
    own: Mapping[str, str],
    *,
    upstream: str = "",
    zone: Path = Path(),
) -> str:
    """Corefile of a server that answers from the file `zone` or forwards queries to the address `upstream`.

    `box` has the properties of the CoreDNS plugin `box`, and `own` has the properties of the plugin `coalesce`.
    """
    offered = set(transports)
    port = ":53" if offered & {"doudp", "dotcp"} else ":5300"
    listeners = {"doh": ("https", ":443"), "doh3": ("h3", ":443"), "doq": ("doq", ":853")}
    listening = {key: address for transport, (key, address) in listeners.items() if transport in offered}
    lines = ["box {", *(f"    {name} {value}" for name, value in box.items()), "}"]
    if "site" in box:
        lines.append(f"nsid {box['site']}")
    return corefile_text(
        certificates,
        zone,
        {**listening, "control": f'"{folder / "control"}"', **own},
        addresses=f".{port}" + (" tls://." if "dot" in offered else ""),
        upstream=upstream,
        further=lines,
    )


def zone_text(description: Description, hosts: Mapping[str, Iterable[str]], wildcard: str) -> str:
    """Text of a zone file for the root.

    Each name in `hosts` has its own addresses. Every other name in the box's zone has the address `wildcard`.
    """
    ttl, zone = description.zone.ttl_s, description.zone.name
    lines = [
        "$ORIGIN .",
        f"$TTL {ttl}",
        f"@ IN SOA ns.{zone}. hostmaster.{zone}. 1 3600 600 86400 {ttl}",
        f"@ IN NS ns.{zone}.",
        f"{zone}. IN A {wildcard}",
        f"*.{zone}. IN A {wildcard}",
    ]
    for name, addresses in hosts.items():
        lines += [f"{name}. IN {'AAAA' if ':' in address else 'A'} {address}" for address in addresses]
    return "\n".join(lines) + "\n"
