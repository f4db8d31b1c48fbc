"""BIND 9 as an authoritative server at the far end: written down, started, waited for, its CPU time read, stopped."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from crosslayer import places
from crosslayer.testbed.certificates import Certificates
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.programs import Spawn, stop_program

LOCAL = ("127.0.0.1", 5300)
"""Where BIND answers those on its own machine, UDP and TCP."""

_READY_TIMEOUT_S = 20.0
_POLL_S = 0.01
_LOG_LINES = 3


class BindError(TestbedError):
    """BIND is missing, did not start, or refused its zone."""


def find_named() -> Path:
    """BIND's program `named`: `CROSSLAYER_NAMED`, the PATH, or /usr/sbin, which is not in everybody's PATH.

    Raises
    ------
    BindError
        Naming the package that has it.
    """
    try:
        return places.find("named").path
    except places.PlaceError as error:
        raise BindError(
            "there is no BIND 9 (`named`) on this machine", where=error.where or "PATH", next_step=error.next_step
        ) from error


def bind_version() -> str:
    """BIND's version, e.g. `BIND 9.18.49`."""
    said = subprocess.run([str(find_named()), "-v"], capture_output=True, text=True, check=False).stdout
    return " ".join(said.split()[:2])


class Bind:
    """A running BIND 9; a context manager that stops it. Made by `Bind.start`.

    Attributes
    ----------
    pid
        Process of `named`.
    """

    def __init__(self, process: subprocess.Popen[Any], log_path: Path) -> None:
        self._process = process
        self._log_path = log_path
        self.pid = process.pid

    @classmethod
    def start(
        cls, spawn: Spawn, *, folder: Path, origin: str, zone: str, certificates: Certificates | None = None
    ) -> Self:
        """Start BIND with one zone and wait until it answers for it.

        Parameters
        ----------
        spawn
            Starts a program at the far end.
        folder
            Private folder for its configuration, the zone and the log.
        origin
            Name of the zone.
        zone
            Text of the zone file (RFC 1035, section 5).
        certificates
            Where given, BIND also answers on every address itself: DoUDP and DoTCP on 53, DoT on 853, DoH on 443.

        Raises
        ------
        BindError
            With BIND's own words: it is missing, its port is taken, or it refuses the zone.
        """
        named = find_named()
        log = folder / "named.log"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / "zone").write_text(zone, encoding="utf-8")
            (folder / "named.conf").write_text(_configuration(folder, origin, certificates), encoding="utf-8")
            # A copy: AppArmor lets the program at its usual place read its usual folders only.
            program = shutil.copy2(named, folder / "named")
            output = log.open("wb")
        except OSError as error:
            raise BindError(
                f"BIND's files cannot be written: {error.strerror}",
                where=str(error.filename or folder),
                next_step="Free some space, or use another folder.",
            ) from error
        words = [str(program), "-g", "-4", "-n", "1", "-c", str(folder / "named.conf")]
        with output:
            process = spawn(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        bind = cls(process, log)
        try:
            bind._wait_until_ready(origin)
        except BaseException:
            bind.stop()
            raise
        return bind

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop BIND and wait for its end. A second call does nothing."""
        stop_program(self._process)

    def _wait_until_ready(self, origin: str) -> None:
        """Wait for its word `running`, which comes after zones are loaded and ports are bound."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while True:
            ended = self._process.poll() is not None
            lines = self._log_path.read_text(encoding="utf-8", errors="replace").splitlines()
            running = any(line.endswith(" running") for line in lines)
            if ended or running or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)  # named tells its log only
        taken = [line for line in lines if "address in use" in line or ("interface" in line and "failed" in line)]
        of_zone = [line for line in lines if f"zone {origin}/IN:" in line and "loaded serial" not in line]
        wrong = [line for line in lines if "/zone:" in line]
        if taken:
            raise self._failure(f"BIND cannot listen on {LOCAL[0]}, port {LOCAL[1]}: a port is in use", taken)
        if any("failed" in line or "not loaded" in line for line in of_zone):
            raise self._failure(f"BIND refuses the zone {origin}", [*wrong, *of_zone])
        if not running:
            what = f"BIND ended with status {self._process.returncode}" if ended else "BIND was not ready in time"
            raise self._failure(what, lines[-_LOG_LINES:])

    def _failure(self, what: str, lines: list[str]) -> BindError:
        words = " | ".join(line.split(" ", 2)[-1] for line in lines[:_LOG_LINES])
        return BindError(what, where=str(self._log_path), next_step=f"Its words: {words}" if words else "It was mute.")


def _configuration(folder: Path, origin: str, certificates: Certificates | None) -> str:
    """named.conf: the zone is all it knows, and nothing is asked of anybody."""
    address, port = LOCAL
    tls, listen = "", ""
    if certificates is not None:
        tls = f'tls far {{ cert-file "{certificates.certificate_file}"; key-file "{certificates.key_file}"; }};\n'
        listen = (
            "    listen-on { any; };\n"
            "    listen-on port 853 tls far { any; };\n"
            "    listen-on port 443 tls far http default { any; };\n"
        )
    return f"""\
{tls}options {{
    directory "{folder}";
    pid-file none;
    lock-file none;
    recursion no;
    dnssec-validation no;
    minimal-responses yes;
    listen-on port {port} {{ {address}; }};
{listen}    listen-on-v6 {{ none; }};
}};
controls {{ }};
zone "{origin}" {{ type primary; file "{folder}/zone"; }};
"""
