"""Resolver implementations in the testbed, each on its own host at the far end."""

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

from crosslayer import resources
from crosslayer.decode import choice
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
"""The name that every emulated resolver answers."""
ADDRESS = "10.53.1.1"
"""The IPv4 address of `NAME` in the answers of the emulated resolvers."""

_OUTSIDE = "For hosts outside see --allow-external in `crosslayer discover -h`."


@dataclass(frozen=True, slots=True)
class Implementation:
    """A resolver implementation in one configuration."""

    name: str
    resource: str
    """Name of the implementation's program, a key of `resources.RESOURCES`."""
    listens: frozenset[namespaces.Socket]
    """Sockets that are open when the resolver is ready."""
    configure: Callable[[Path, Certificates, Path], list[str]]
    """Function that writes the configuration into a folder; returns the program's arguments.

    Its parameters are the folder, the certificates and the zone file.
    """
    url: str = "https://github.com/coredns/coredns"
    version_argument: str = "-V"
    """Argument with which the program prints its version."""

    def version(self) -> str:
        """Version of the program, e.g. `5.6.0`; `0` if it prints none. `ResourceError` if the program is missing."""
        return ".".join(map(str, _version(self.resource, self.version_argument)))


@dataclass(frozen=True, slots=True)
class Absent:
    """An implementation that is not installed, or did not start."""

    name: str
    why: str
    next_step: str


@dataclass(slots=True)
class Population:
    """The running emulated resolvers."""

    addresses: dict[str, str] = field(default_factory=dict)
    """IPv4 address of each implementation, by name."""
    absent: list[Absent] = field(default_factory=list)

    def hosts(self, targets: Sequence[Target]) -> list[ProbedHost]:
        """Targets as hosts of the testbed; without targets, all running resolvers.

        Raises `DiscoverError` for an address outside the testbed, and for a name that no running resolver has.
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
            next_step=f"{choice(name, self.addresses, say='There are')} {_OUTSIDE}",
        )


def _inside(target: Target) -> Target:
    if target.address and ipaddress.ip_address(target.address) not in network.NETWORK:
        raise DiscoverError(
            f"{target.address} is not in the testbed ({network.NETWORK}), and hosts outside it are not probed",
            where="TARGETS",
            next_step=_OUTSIDE,
        )
    return target


@contextlib.contextmanager
def population(kinds: Sequence[Implementation] | None = None) -> Iterator[Population]:
    """Start every installed implementation, or those of `kinds`, and stop them at the end of the block.

    Works only in the client's namespace of a testbed. Implementations that are missing or do not start are in
    `Population.absent`. `DiscoverError` if this testbed already has a population.
    """
    started = Population()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=namespaces.ROOT)))
        zone = folder / "zone"
        zone.write_text(zone_text({NAME: ADDRESS}), encoding="utf-8")
        starting = []
        for number, kind in enumerate(IMPLEMENTATIONS if kinds is None else kinds):
            program = _find(kind)
            if isinstance(program, Absent):
                started.absent.append(program)
                continue
            try:
                namespace, address = stack.enter_context(network.far_host(number))
            except FileExistsError:
                raise DiscoverError(
                    "the emulated resolvers run already",
                    where="crosslayer discover",
                    next_step="Wait until the other `crosslayer discover` on this link has ended.",
                ) from None
            starting.append(stack.enter_context(_Emulated(kind, program, namespace, address, folder, zone)))
        for resolver in starting:
            try:
                resolver.wait_until(resolver.listens)
            except DiscoverError as error:
                started.absent.append(Absent(resolver.kind.name, "did not start", error.next_step))
            else:
                started.addresses[resolver.kind.name] = resolver.address
        yield started


def _find(kind: Implementation) -> Path | Absent:
    """Program of an implementation, or the reason why it is missing."""
    try:
        return resources.locate(kind.resource).path
    except resources.ResourceError as error:
        return Absent(kind.name, f"{error.where}: {error.what}" if error.where else error.what, error.next_step)


class _Emulated(Process):
    """One running resolver."""

    name = "the resolver"
    fault = DiscoverError
    ready_timeout_s = 20.0
    log_lines = 1

    def __init__(
        self, kind: Implementation, program: Path, namespace: str, address: str, folder: Path, zone: Path
    ) -> None:
        self.kind = kind
        self.address = address
        self._namespace = namespace
        own = folder / kind.name
        with self.writing(own):
            certificates = make_certificates(own, [kind.name, NAME], [address])
            # Start a copy: at the program's usual path, AppArmor restricts it to its usual folders.
            copy = shutil.copy2(program, own / resources.RESOURCES[kind.resource].program)
            command = namespaces.command_in(namespace, [str(copy), *kind.configure(own, certificates, zone)])
        super().__init__(subprocess.Popen, command, own / "log", cwd=own)

    def listens(self) -> bool:
        """Whether all ports of the resolver are open."""
        return self.kind.listens <= namespaces.listening(self._namespace)


def _version(resource: str, argument: str) -> tuple[int, ...]:
    output = subprocess.run(
        [str(resources.locate(resource).path), argument], capture_output=True, text=True, check=False
    )
    match = re.search(r"\d+(\.\d+)+", output.stdout + output.stderr)
    return tuple(map(int, match[0].split("."))) if match else (0,)


# Implementations


def _configure_coalesce(
    folder: Path, certificates: Certificates, zone: Path, *, server_block: str, properties: Mapping[str, str]
) -> list[str]:
    """crosslayer's server: CoreDNS with the plugin `coalesce`."""
    corefile = folder / "Corefile"
    corefile.write_text(corefile_text(certificates, zone, properties, addresses=server_block), encoding="utf-8")
    return ["-conf", str(corefile)]


def _configure_bind(folder: Path, certificates: Certificates, zone: Path, *, tls_versions: str) -> list[str]:
    """BIND 9.18 and later."""
    configuration = folder / "named.conf"
    text = bind_configuration(folder, ".", zone, certificates, tls_versions=tls_versions)
    configuration.write_text(text, encoding="utf-8")
    return bind_arguments(configuration)


def _configure_knot_resolver(folder: Path, certificates: Certificates, _zone: Path) -> list[str]:
    """Knot Resolver: answers `NAME` from its hints; answers over QUIC since version 6."""
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


def _configure_coredns(folder: Path, certificates: Certificates, zone: Path) -> list[str]:
    """CoreDNS with the listeners of CoreDNS: the program of crosslayer's server, without the plugin `coalesce`."""
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


def _configure_unbound(folder: Path, certificates: Certificates, _zone: Path) -> list[str]:
    """Unbound: answers `NAME` from its local data; over HTTP/2 and QUIC if these were enabled when it was built."""
    built = subprocess.run(
        [str(resources.locate("unbound").path), "-V"], capture_output=True, text=True, check=False
    ).stdout
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


def _configure_dnsdist(folder: Path, certificates: Certificates, _zone: Path) -> list[str]:
    """dnsdist: answers `NAME` by a rule, without an upstream; over QUIC if this was enabled when it was built."""
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


def _configure_knot(folder: Path, certificates: Certificates, zone: Path) -> list[str]:
    """Knot DNS, an authoritative server: answers over QUIC since version 3.3, and over TLS since version 3.4."""
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


def _configure_dnsproxy(folder: Path, certificates: Certificates, _zone: Path) -> list[str]:
    """AdGuard's dnsproxy: answers `NAME` from a hosts file; its mandatory upstream does not exist."""
    hosts = folder / "hosts"
    hosts.write_text(f"{ADDRESS} {NAME}\n", encoding="utf-8")
    return [*far_end("0.0.0.0", ("127.0.0.1", 5300), certificates), f"--hosts-files={hosts}"]


_DNS = frozenset({("udp", 53), ("tcp", 53)})
_TLS = frozenset({("tcp", 853), ("tcp", 443)})
_QUIC = frozenset({("udp", 853), ("udp", 443)})


def _own_server(
    name: str, server_block: str, listens: frozenset[namespaces.Socket], **properties: str
) -> Implementation:
    configure = partial(_configure_coalesce, server_block=server_block, properties=properties)
    return Implementation(name, "server", listens, configure, version_argument="-version")


def _bind9(name: str, tls_versions: str) -> Implementation:
    configure = partial(_configure_bind, tls_versions=tls_versions)
    return Implementation(name, "named", _DNS | _TLS, configure, "https://gitlab.isc.org/isc-projects/bind9")


IMPLEMENTATIONS: tuple[Implementation, ...] = (
    _own_server("coalesce", ". tls://.", _DNS | _TLS | _QUIC, https=":443", h3=":443", doq=":853"),
    _own_server(
        "coalesce-retry", ".", _DNS | {("udp", 443), ("udp", 784)}, h3=":443", doq=":784", retry="on", early_data="off"
    ),
    _own_server("coalesce-8853", ".", _DNS | {("udp", 8853)}, doq=":8853"),
    # A web server at a DoQ port: it answers the probe, and only ALPN shows that it is not DoQ.
    _own_server("http3-853", ".:5300", frozenset({("udp", 853)}), h3=":853"),
    _bind9("bind9", "TLSv1.2; TLSv1.3;"),
    _bind9("bind9-tls12", "TLSv1.2;"),
    Implementation(
        "knot-resolver", "kresd", _DNS | _TLS, _configure_knot_resolver, "https://github.com/CZ-NIC/knot-resolver"
    ),
    Implementation("coredns", "server", _DNS | _TLS | _QUIC, _configure_coredns, version_argument="-version"),
    Implementation(
        "dnsproxy",
        "dnsproxy",
        _DNS | _TLS | _QUIC,
        _configure_dnsproxy,
        "https://github.com/AdguardTeam/dnsproxy",
        "--version",
    ),
    Implementation("knot", "knotd", _DNS, _configure_knot, "https://github.com/CZ-NIC/knot"),
    Implementation(
        "unbound", "unbound", _DNS | {("tcp", 853)}, _configure_unbound, "https://github.com/NLnetLabs/unbound"
    ),
    Implementation(
        "dnsdist", "dnsdist", _DNS | _TLS, _configure_dnsdist, "https://github.com/PowerDNS/pdns", "--version"
    ),
)
"""All implementations, in the order of their addresses."""
