"""BIND 9 as an authoritative server at the far end: configuration, start, readiness check and version."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Self

from crosslayer import resources
from crosslayer.process import Process, Spawn
from crosslayer.testbed.certificates import Certificates
from crosslayer.testbed.errors import TestbedError

LOCAL = ("127.0.0.1", 5300)
"""Address and port at which BIND answers programs in its own namespace, UDP and TCP."""


class BindError(TestbedError):
    """BIND is missing, did not start, or refused its zone."""


def find_named() -> Path:
    """Path of BIND's program `named` from `resources.locate`; `BindError` names the package if it is missing."""
    try:
        return resources.locate("named").path
    except resources.ResourceError as error:
        raise BindError(
            "there is no BIND 9 (`named`) on this machine", where=error.where or "PATH", next_step=error.next_step
        ) from error


def bind_version() -> str:
    """BIND's version, e.g. `BIND 9.18.49`."""
    output = subprocess.run([str(find_named()), "-v"], capture_output=True, text=True, check=False).stdout
    return " ".join(output.split()[:2])


class Bind(Process):
    """A running BIND 9. Made by `Bind.start`."""

    name = "BIND"
    fault = BindError
    ready_timeout_s = 20.0
    log_lines = 3

    @classmethod
    def start(
        cls, spawn: Spawn, *, folder: Path, origin: str, zone: str, certificates: Certificates | None = None
    ) -> Self:
        """Start BIND with one zone and wait until it has loaded the zone.

        Parameters
        ----------
        spawn
            Function that starts a program at the far end.
        folder
            Private folder for BIND's configuration, zone and log.
        zone
            Text of the zone file (RFC 1035, section 5).
        certificates
            If given, BIND answers not only at `LOCAL`, but also on every address: DoUDP and DoTCP on port 53, DoT on
            853, DoH on 443.

        Raises
        ------
        BindError
            If BIND is missing, its port is in use, or it refuses the zone; the message contains BIND's log lines.
        """
        named = find_named()
        zone_file, configuration = folder / "zone", folder / "named.conf"
        with cls.writing(folder):
            zone_file.write_text(zone, encoding="utf-8")
            configuration.write_text(bind_configuration(folder, origin, zone_file, certificates), encoding="utf-8")
            # Run a copy: at the program's usual path, AppArmor restricts it to its usual folders.
            program = shutil.copy2(named, folder / "named")
        bind = cls(spawn, [str(program), *bind_arguments(configuration)], folder / "named.log", cwd=folder)
        try:
            # BIND logs `running` after loading zones and binding ports, and also if a zone or port has failed.
            bind.wait_until(lambda: "running" in bind.output())
        finally:
            bind._check(origin)
        return bind

    def output(self) -> list[str]:
        """Lines of BIND's log so far, without date and time."""
        return [line.split(" ", 2)[-1] for line in super().output()]

    def _check(self, origin: str) -> None:
        """Stop BIND and raise `BindError` if its log shows that a port or the zone has failed."""
        lines = self.output()
        in_use = [line for line in lines if "address in use" in line or ("interface" in line and "failed" in line)]
        of_zone = [line for line in lines if f"zone {origin}/IN:" in line and "loaded serial" not in line]
        syntax_errors = [line for line in lines if "/zone:" in line]
        if in_use:
            self.stop()
            raise self.failure(f"BIND cannot listen on {LOCAL[0]}, port {LOCAL[1]}: a port is in use", in_use)
        if any("failed" in line or "not loaded" in line for line in of_zone):
            self.stop()
            raise self.failure(f"BIND refuses the zone {origin}", [*syntax_errors, *of_zone])


def bind_arguments(configuration: Path) -> list[str]:
    """Arguments of `named`: in the foreground, over IPv4, with one thread."""
    return ["-g", "-4", "-n", "1", "-c", str(configuration)]


def bind_configuration(
    folder: Path,
    origin: str,
    zone: Path,
    certificates: Certificates | None,
    *,
    tls_versions: str = "TLSv1.2; TLSv1.3;",
) -> str:
    """Text of named.conf: BIND is authoritative for the zone and sends no queries."""
    address, port = LOCAL
    tls, listen = "", ""
    if certificates is not None:
        tls = f"""\
tls far {{
    cert-file "{certificates.certificate_file}";
    key-file "{certificates.key_file}";
    protocols {{ {tls_versions} }};
}};
"""
        listen = """\
    listen-on { any; };
    listen-on port 853 tls far { any; };
    listen-on port 443 tls far http default { any; };
"""
    return f"""\
{tls}options {{
    directory "{folder}";
    pid-file none;
    recursion no;
    dnssec-validation no;
    minimal-responses yes;
    listen-on port {port} {{ {address}; }};
{listen}    listen-on-v6 {{ none; }};
}};
controls {{ }};
zone "{origin}" {{ type primary; file "{zone}"; }};
"""
