"""Resolvers of several kinds in the testbed, each on a machine of its own at the far end, waiting to be found."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from crosslayer import places
from crosslayer.discover.errors import DiscoverError
from crosslayer.discover.support import ProbedHost
from crosslayer.discover.targets import Target
from crosslayer.process import Process
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.bind import bind_arguments, bind_configuration
from crosslayer.testbed.certificates import Certificates, make_certificates
from crosslayer.testbed.dnsproxy import far_end
from crosslayer.testbed.server import corefile_text, zone_text

NAME = "www.example.org"
"""The name every emulated resolver knows."""
ADDRESS = "10.53.1.1"
"""The address they answer with."""

_OUTSIDE = "For hosts outside see --outside in `crosslayer discover -h`."

Socket = tuple[str, int]
"""`tcp` or `udp`, and a port."""


@dataclass(frozen=True, slots=True)
class Implementation:
    """A resolver's implementation, in one configuration."""

    name: str
    thing: str
    """Its program, one of `places.THINGS`."""
    listens: frozenset[Socket]
    """What it has open when it is ready."""
    configure: Callable[[Path, Certificates, Path], list[str]]
    """Writes its configuration into a folder, with certificates and a zone file; returns its arguments."""
    url: str = "https://github.com/coredns/coredns"
    asked: str = "-V"
    """The argument by which it tells its version."""

    def version(self) -> str:
        """Its version, e.g. `5.6.0`; `0` where it does not say. `PlaceError` where it is not here."""
        return ".".join(map(str, _version(self.thing, self.asked)))


@dataclass(frozen=True, slots=True)
class Absent:
    """A kind that is not here, or did not start."""

    name: str
    why: str
    next_step: str


@dataclass(slots=True)
class Population:
    """The resolvers that wait to be found."""

    addresses: dict[str, str] = field(default_factory=dict)
    """IPv4 address of each kind, by its name."""
    absent: list[Absent] = field(default_factory=list)

    def hosts(self, targets: Sequence[Target]) -> list[ProbedHost]:
        """Targets as hosts of the testbed; all resolvers where there are none.

        `DiscoverError` for an address outside the testbed, and a name no resolver in it has.
        """
        if not targets:
            return [ProbedHost(name, address) for name, address in self.addresses.items()]
        return [
            ProbedHost(target.text, target.address or self._address_of(target.text)) for target in map(_inside, targets)
        ]

    def _address_of(self, name: str) -> str:
        if name in self.addresses:
            return self.addresses[name]
        for absent in self.absent:
            if absent.name == name:
                raise DiscoverError(absent.why, where=name, next_step=absent.next_step)
        raise DiscoverError(
            f"there is no resolver '{name}' in the testbed",
            where="TARGETS",
            next_step=f"There are: {', '.join(self.addresses)}. {_OUTSIDE}",
        )


def _inside(target: Target) -> Target:
    if target.address and ipaddress.ip_address(target.address) not in network.NETWORK:
        raise DiscoverError(
            f"{target.address} is not in the testbed ({network.NETWORK}), and nothing outside it is probed",
            where="TARGETS",
            next_step=_OUTSIDE,
        )
    return target


@contextlib.contextmanager
def population(kinds: Sequence[Implementation] | None = None) -> Iterator[Population]:
    """Start a resolver of every kind there is on this machine, or of those given, and stop them all at the end.

    In the client's namespace of a testbed only. What is missing, or does not start, is told in the population and is no
    failure; where another population is in this testbed already, `DiscoverError`.
    """
    found = Population()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=namespaces.ROOT)))
        zone = folder / "zone"
        zone.write_text(zone_text({NAME: ADDRESS}), encoding="utf-8")
        starting = []
        for number, kind in enumerate(IMPLEMENTATIONS if kinds is None else kinds):
            program = _find(kind)
            if isinstance(program, Absent):
                found.absent.append(program)
                continue
            try:
                machine, address = stack.enter_context(network.far_host(number))
            except FileExistsError:
                raise DiscoverError(
                    "the testbed has emulated resolvers already",
                    where="crosslayer discover",
                    next_step="Wait for the other discover on this link to end.",
                ) from None
            starting.append(stack.enter_context(_Emulated(kind, program, machine, address, folder, zone)))
        for resolver in starting:
            try:
                resolver.wait_until(resolver.listens)
            except DiscoverError as error:
                found.absent.append(Absent(resolver.kind.name, "did not start", error.next_step))
            else:
                found.addresses[resolver.kind.name] = resolver.address
        yield found


def _find(kind: Implementation) -> Path | Absent:
    """A kind's program, or why there is none."""
    try:
        return places.find(kind.thing).path
    except places.PlaceError as error:
        return Absent(kind.name, f"{error.where}: {error.what}" if error.where else error.what, error.next_step)


class _Emulated(Process):
    """One running resolver."""

    name = "the resolver"
    fault = DiscoverError
    ready_timeout_s = 20.0
    log_lines = 1

    def __init__(
        self, kind: Implementation, program: Path, machine: str, address: str, folder: Path, zone: Path
    ) -> None:
        self.kind = kind
        self.address = address
        self._machine = machine
        own = folder / kind.name
        with self.writing(own):
            certificates = make_certificates(own, [kind.name, NAME], [address])
            # A copy: AppArmor lets the program at its usual place read its usual folders only.
            copy = shutil.copy2(program, own / places.THINGS[kind.thing].program)
            words = namespaces.command_in(machine, [str(copy), *kind.configure(own, certificates, zone)])
        super().__init__(subprocess.Popen, words, own / "log", cwd=own)

    def listens(self) -> bool:
        """Whether it listens to all its ports."""
        return self.kind.listens <= _listening(self._machine)


def _listening(machine: str) -> set[Socket]:
    with namespaces.namespace(machine):
        tables = {
            protocol: [Path(f"/proc/thread-self/net/{protocol}{family}") for family in ("", "6")]
            for protocol in ("tcp", "udp")
        }
        return {
            (protocol, port)
            for protocol, paths in tables.items()
            for path in paths
            if path.exists()
            for port in bound_ports(path.read_text(encoding="ascii"))
        }


_TCP_LISTEN, _UDP_UNCONNECTED = "0A", "07"


def bound_ports(table: str) -> set[int]:
    """Local ports of the sockets that wait for clients in a text of /proc/net/tcp, udp, tcp6 or udp6 (proc(5))."""
    rows = (line.split() for line in table.splitlines()[1:])
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] in (_TCP_LISTEN, _UDP_UNCONNECTED)}


def _version(thing: str, asked: str) -> tuple[int, ...]:
    said = subprocess.run([str(places.find(thing).path), asked], capture_output=True, text=True, check=False)
    found = re.search(r"\d+(\.\d+)+", said.stdout + said.stderr)
    return tuple(map(int, found[0].split("."))) if found else (0,)


# The kinds


def _coalesce(
    folder: Path, certificates: Certificates, zone: Path, *, server_block: str, properties: Mapping[str, str]
) -> list[str]:
    """Our server: CoreDNS with the plugin `coalesce`."""
    corefile = folder / "Corefile"
    corefile.write_text(corefile_text(certificates, zone, properties, addresses=server_block), encoding="utf-8")
    return ["-conf", str(corefile)]


def _bind(folder: Path, certificates: Certificates, zone: Path, *, tls_versions: str) -> list[str]:
    """BIND 9.18 and later."""
    configuration = folder / "named.conf"
    text = bind_configuration(folder, ".", zone, certificates, tls_versions=tls_versions)
    configuration.write_text(text, encoding="utf-8")
    return bind_arguments(configuration)


def _knot_resolver(folder: Path, certificates: Certificates, _zone: Path) -> list[str]:
    """Knot Resolver: one name from its hints; over QUIC since version 6."""
    quic = "pcall(net.listen, '0.0.0.0', 853, { kind = 'doq' })" if _version("kresd", "-V")[0] >= 6 else ""
    configuration = folder / "kresd.conf"
    configuration.write_text(
        f"""\
net.ipv6 = false
for port, kind in pairs({{ [53] = 'dns', [853] = 'tls', [443] = 'doh2' }}) do
    net.listen('0.0.0.0', port, {{ kind = kind }})
end
{quic}
net.tls('{certificates.certificate_file}', '{certificates.key_file}')
trust_anchors.remove('.')
cache.size = 1 * MB
modules = {{ 'hints > iterate' }}
hints['{NAME}'] = '{ADDRESS}'
""",
        encoding="utf-8",
    )
    return ["-n", "-c", str(configuration), str(folder)]


def _coredns(folder: Path, certificates: Certificates, zone: Path) -> list[str]:
    """CoreDNS by its own listeners, without a plugin of ours: it is built into the same program."""
    corefile = folder / "Corefile"
    corefile.write_text(
        f"""\
.:53 tls://.:853 https://.:443 https3://.:443 quic://.:853 {{
    tls {certificates.certificate_file} {certificates.key_file}
    errors
    minimal
    file {zone} .
}}
""",
        encoding="utf-8",
    )
    return ["-conf", str(corefile)]


def _unbound(folder: Path, certificates: Certificates, _zone: Path) -> list[str]:
    """Unbound: one name from its local data; over HTTP/2 and QUIC where it is built with them."""
    built = subprocess.run([str(places.find("unbound").path), "-V"], capture_output=True, text=True, check=False).stdout
    https = "interface: 0.0.0.0@443\n    https-port: 443" if "nghttp2" in built else ""
    quic = "quic-port: 853" if "ngtcp2" in built else ""
    configuration = folder / "unbound.conf"
    configuration.write_text(
        f"""\
server:
    directory: "{folder}"
    chroot: ""
    username: ""
    pidfile: ""
    use-syslog: no
    do-daemonize: no
    do-ip6: no
    access-control: {network.NETWORK} allow
    module-config: "iterator"
    interface: 0.0.0.0@53
    interface: 0.0.0.0@853
    tls-port: 853
    {quic}
    {https}
    tls-service-pem: "{certificates.certificate_file}"
    tls-service-key: "{certificates.key_file}"
    local-zone: "{NAME}." static
    local-data: "{NAME}. 300 IN A {ADDRESS}"
remote-control:
    control-enable: no
""",
        encoding="utf-8",
    )
    return ["-d", "-c", str(configuration)]


def _dnsdist(folder: Path, certificates: Certificates, _zone: Path) -> list[str]:
    """dnsdist: it answers by itself; over QUIC where it is built with that."""
    configuration = folder / "dnsdist.conf"
    files = f"'{certificates.certificate_file}', '{certificates.key_file}'"
    configuration.write_text(
        f"""\
setSecurityPollSuffix('')
setLocal('0.0.0.0:53')
setACL('{network.NETWORK}')
addTLSLocal('0.0.0.0:853', {files})
addDOHLocal('0.0.0.0:443', {files}, '/dns-query')
if addDOQLocal then pcall(addDOQLocal, '0.0.0.0:853', {files}) end
if addDOH3Local then pcall(addDOH3Local, '0.0.0.0:443', {files}) end
addAction(QNameRule('{NAME}'), SpoofAction('{ADDRESS}'))
""",
        encoding="utf-8",
    )
    return ["--supervised", "--disable-syslog", "-C", str(configuration)]


def _knot(folder: Path, certificates: Certificates, zone: Path) -> list[str]:
    """Knot DNS, an authoritative server: over QUIC since 3.3, over TLS since 3.4."""
    version = _version("knotd", "-V")
    known = [option for option, since in (("listen-quic", (3, 3)), ("listen-tls", (3, 4))) if version >= since]
    further = "".join(f"    {option}: 0.0.0.0@853\n" for option in known)
    configuration = folder / "knot.conf"
    configuration.write_text(
        f"""\
server:
    rundir: "{folder}"
    listen: 0.0.0.0@53
{further}    key-file: "{certificates.key_file}"
    cert-file: "{certificates.certificate_file}"
database:
    storage: "{folder}"
log:
  - target: stderr
    any: info
zone:
  - domain: .
    file: "{zone}"
""",
        encoding="utf-8",
    )
    return ["-c", str(configuration)]


def _dnsproxy(folder: Path, certificates: Certificates, _zone: Path) -> list[str]:
    """AdGuard's dnsproxy: one name from a file of hosts; its upstream, which it must have, is nobody."""
    hosts = folder / "hosts"
    hosts.write_text(f"{ADDRESS} {NAME}\n", encoding="utf-8")
    return [*far_end("0.0.0.0", ("127.0.0.1", 5300), certificates), f"--hosts-files={hosts}"]


_DNS = frozenset({("udp", 53), ("tcp", 53)})
_TLS = frozenset({("tcp", 853), ("tcp", 443)})
_QUIC = frozenset({("udp", 853), ("udp", 443)})


def _ours(name: str, server_block: str, listens: frozenset[Socket], **properties: str) -> Implementation:
    configure = partial(_coalesce, server_block=server_block, properties=properties)
    return Implementation(name, "server", listens, configure, asked="-version")


def _bind9(name: str, tls_versions: str) -> Implementation:
    configure = partial(_bind, tls_versions=tls_versions)
    return Implementation(name, "named", _DNS | _TLS, configure, "https://gitlab.isc.org/isc-projects/bind9")


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    _ours("coalesce", ". tls://.", _DNS | _TLS | _QUIC, https=":443", h3=":443", doq=":853"),
    _ours(
        "coalesce-retry", ".", _DNS | {("udp", 443), ("udp", 784)}, h3=":443", doq=":784", retry="on", early_data="off"
    ),
    _ours("coalesce-8853", ".", _DNS | {("udp", 8853)}, doq=":8853"),
    # What a probe finds and ALPN tells apart: a web server at a port of DoQ.
    _ours("http3-853", ".:5300", frozenset({("udp", 853)}), h3=":853"),
    _bind9("bind9", "TLSv1.2; TLSv1.3;"),
    _bind9("bind9-tls12", "TLSv1.2;"),
    Implementation("knot-resolver", "kresd", _DNS | _TLS, _knot_resolver, "https://github.com/CZ-NIC/knot-resolver"),
    Implementation("coredns", "server", _DNS | _TLS | _QUIC, _coredns, asked="-version"),
    Implementation(
        "dnsproxy", "dnsproxy", _DNS | _TLS | _QUIC, _dnsproxy, "https://github.com/AdguardTeam/dnsproxy", "--version"
    ),
    Implementation("knot", "knotd", _DNS, _knot, "https://github.com/CZ-NIC/knot"),
    Implementation("unbound", "unbound", _DNS | {("tcp", 853)}, _unbound, "https://github.com/NLnetLabs/unbound"),
    Implementation("dnsdist", "dnsdist", _DNS | _TLS, _dnsdist, "https://github.com/PowerDNS/pdns", "--version"),
)
"""Every kind, in the order of their addresses."""
