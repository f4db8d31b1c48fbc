"""Resolvers of a box that run other software than crosslayer's (BIND 9, Unbound etc.), as forwarders with a cache.

These resolvers do not report individual queries. The authoritative server reports only queries that miss their caches.
So the truth (the box's record of true values) lacks the queries that their caches answer.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from crosslayer import resources
from crosslayer.box.description import MAKES, Make
from crosslayer.box.errors import BoxStartError
from crosslayer.box.hosts import BoxHost, socket_of
from crosslayer.process import Process
from crosslayer.testbed import namespaces
from crosslayer.testbed.bind import bind_arguments
from crosslayer.testbed.certificates import Certificates
from crosslayer.testbed.dnsproxy import far_end

_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class _MakeProgram:
    """Program and configuration of a make."""

    resource: str
    """Key of the program in `resources.RESOURCES`."""
    configure: Callable[[Path, Certificates, str], list[str]]
    """Writes the configuration; returns the program's arguments. Parameters: folder, certificates, upstream address."""


class MakeServer(Process):
    """A running resolver of a make other than `crosslayer`; `MakeServer.start` starts it."""

    name = "a resolver of the box"
    fault = BoxStartError
    ready_timeout_s = 60.0

    @classmethod
    def start(cls, make: Make, host: BoxHost, folder: Path, certificates: Certificates, upstream: str) -> Self:
        """Start the resolver in the host's namespace. This method does not wait for its ports; `ready` does.

        `BoxStartError` if the program is not installed.
        """
        program = PROGRAMS[make]
        try:
            path = resources.locate(program.resource).path
        except resources.ResourceError as error:
            raise BoxStartError(
                f"{make} is not installed: {error.what}",
                where=f"resolver '{host.name}'",
                next_step=f"{error.next_step} Or remove this resolver from the box.",
            ) from error
        with cls.writing(folder):
            # Run a copy: at the program's usual path, AppArmor restricts it to its usual folders.
            copy = shutil.copy2(path, folder / resources.RESOURCES[program.resource].program)
            command = [str(copy), *program.configure(folder, certificates, upstream)]
        server = cls(subprocess.Popen, namespaces.command_in(host.namespace, command), folder / "log", cwd=folder)
        server._namespace = host.namespace
        server._listens = {socket_of(transport) for transport in MAKES[make]}
        return server

    def ready(self) -> None:
        """Wait until all ports of the resolver are open.

        Raises `BoxStartError`, with the resolver's last log lines, if the resolver exits or does not open its ports in
        time.
        """
        self.wait_until(lambda: self._listens <= namespaces.listening(self._namespace))

    _namespace: str
    _listens: set[tuple[str, int]]


def _bind9(folder: Path, certificates: Certificates, upstream: str) -> list[str]:
    configuration = folder / "named.conf"
    configuration.write_text(
        f"""\
tls far {{ cert-file "{certificates.certificate_file}"; key-file "{certificates.key_file}"; }};
options {{
    directory "{folder}";
    pid-file none;
    recursion yes;
    allow-recursion {{ any; }};
    dnssec-validation no;
    empty-zones-enable no;
    minimal-responses yes;
    forward only;
    forwarders {{ {upstream}; }};
    listen-on {{ any; }};
    listen-on port 853 tls far {{ any; }};
    listen-on port 443 tls far http default {{ any; }};
    listen-on-v6 {{ none; }};
}};
controls {{ }};
""",
        encoding="utf-8",
    )
    return bind_arguments(configuration)


def _knot_resolver(folder: Path, certificates: Certificates, upstream: str) -> list[str]:
    configuration = folder / "kresd.conf"
    configuration.write_text(
        f"""\
net.ipv6 = false
for port, kind in pairs({{ [53] = 'dns', [853] = 'tls', [443] = 'doh2' }}) do
    net.listen('0.0.0.0', port, {{ kind = kind }})
end
net.tls('{certificates.certificate_file}', '{certificates.key_file}')
trust_anchors.remove('.')
modules.unload('ta_update')
modules.unload('ta_signal_query')
modules.unload('priming')
cache.size = 4 * MB
policy.add(policy.all(policy.FORWARD('{upstream}')))
""",
        encoding="utf-8",
    )
    return ["-n", "-c", str(configuration), str(folder)]


def _unbound(folder: Path, certificates: Certificates, upstream: str) -> list[str]:
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
    num-threads: 1
    access-control: 0.0.0.0/0 allow
    module-config: "iterator"
    interface: 0.0.0.0@53
    interface: 0.0.0.0@853
    tls-port: 853
    tls-service-pem: "{certificates.certificate_file}"
    tls-service-key: "{certificates.key_file}"
    local-zone: "example." nodefault
    local-zone: "test." nodefault
remote-control:
    control-enable: no
forward-zone:
    name: "."
    forward-addr: {upstream}
""",
        encoding="utf-8",
    )
    return ["-d", "-c", str(configuration)]


def _dnsdist(folder: Path, certificates: Certificates, upstream: str) -> list[str]:
    configuration = folder / "dnsdist.conf"
    files = f"'{certificates.certificate_file}', '{certificates.key_file}'"
    configuration.write_text(
        f"""\
setSecurityPollSuffix('')
setLocal('0.0.0.0:53')
setACL('0.0.0.0/0')
addTLSLocal('0.0.0.0:853', {files})
addDOHLocal('0.0.0.0:443', {files}, '/dns-query')
newServer({{ address = '{upstream}', healthCheckMode = 'up' }})
getPool(''):setCache(newPacketCache({_CACHED}))
""",
        encoding="utf-8",
    )
    return ["--supervised", "--disable-syslog", "-C", str(configuration)]


def _dnsproxy(_folder: Path, certificates: Certificates, upstream: str) -> list[str]:
    return [*far_end("0.0.0.0", (upstream, 53), certificates), "--cache"]


PROGRAMS: Final = {
    "bind9": _MakeProgram("named", _bind9),
    "knot-resolver": _MakeProgram("kresd", _knot_resolver),
    "unbound": _MakeProgram("unbound", _unbound),
    "dnsdist": _MakeProgram("dnsdist", _dnsdist),
    "dnsproxy": _MakeProgram("dnsproxy", _dnsproxy),
}
"""Programs of the makes, except `crosslayer`, which `servers.py` starts."""
