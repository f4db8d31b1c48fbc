"""`crosslayer stub`: a DNS forwarder over any transport."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from crosslayer.commands.common import PATH, FiniteRange, typed

if TYPE_CHECKING:
    from crosslayer.stub import StubSettings


_DAY_S = 86_400
_SECONDS = FiniteRange(0.001, _DAY_S)


@click.command("stub")
@click.option(
    "--upstream",
    required=True,
    metavar="URL",
    help="Upstream resolver: SCHEME://HOST[:PORT]. SCHEME is udp, tcp, tls, https, h3 or quic.",
)
@click.option("--listen", default="127.0.0.1:53", show_default=True, metavar="ADDRESS:PORT", help="Local address.")
@click.option("--ca", type=PATH, help="PEM file of the CAs that the stub trusts, instead of the system's.")
@click.option("--server-name", default="", help="Name in the upstream's certificate, if it is not HOST of --upstream.")
@click.option(
    "--resumption",
    type=click.Choice(["none", "ticket", "early-data"]),
    help="What a new connection reuses from earlier connections. none: nothing. ticket: a ticket and, over QUIC, an "
    "address-validation token. early-data (only over h3 and quic): ticket and token; the query is sent as early data.  "
    "[default: ticket; none over udp and tcp]",
)
@click.option(
    "--timeout", type=_SECONDS, default=5.0, show_default=True, help="Seconds until an unanswered query gets SERVFAIL."
)
@click.option(
    "--idle-timeout", type=_SECONDS, default=30.0, show_default=True, help="Seconds until an idle connection is closed."
)
@click.option(
    "--udp-retransmit",
    type=_SECONDS,
    default=1.0,
    show_default=True,
    help="Over DoUDP: seconds until an unanswered query is repeated; the wait doubles with each repetition.",
)
@click.option(
    "--probe-idle-after",
    type=FiniteRange(0, _DAY_S),
    default=1.0,
    show_default=True,
    help="If a connection without open queries got its last answer more than this many seconds ago, the next query "
    "tests it. If no packet arrives within a probe timeout (PTO) after this query, the stub repeats the query on a "
    "new connection. 0: no test.",
)
@click.option("--metrics", type=PATH, help="Append the JSON line of each query to this file, not to standard output.")
@click.option(
    "--control",
    type=PATH,
    help="Create a Unix socket at this path: the control socket, on which the stub accepts commands.",
)
@click.option(
    "--i-may-send-this",
    "consents",
    is_flag=True,
    help="For scripts: with this option, you consent to sending packets to the upstream, and the command does not ask "
    "for consent.",
)
@click.option(
    "--clock",
    type=click.Choice(["wall"]),
    default="wall",
    hidden=True,
    expose_value=False,
    help="The only value is wall (real time). For virtual time, run the stub as COMMAND of crosslayer link --clock "
    "virtual.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def command(
    upstream: str,
    listen: str,
    ca: Path | None,
    server_name: str,
    resumption: str | None,
    timeout: float,
    idle_timeout: float,
    udp_retransmit: float,
    probe_idle_after: float,
    metrics: Path | None,
    control: Path | None,
    consents: bool,
    command: tuple[str, ...],
) -> None:
    """Forward DNS queries from a local address to one upstream over any transport, and print how long each query took.

    The stub keeps one connection to the upstream. When this connection has ended, the next query opens a new one.
    --resumption determines whether the new connection uses tickets and tokens of earlier connections, and whether it
    sends early data. Queries that arrive while a new connection is being set up wait until it is ready. The stub
    caches no answers. It prints one JSON line per query: handshake_ms, query_ms, total_ms, new_connection, resumed,
    early_data, rcode, error and more.

    Outside `crosslayer link` and `crosslayer box`, HOST in --upstream must be an IP address. The stub asks for your
    consent before it sends anything to another machine.

    With a COMMAND, the stub runs as long as COMMAND and exits with COMMAND's status. Without a COMMAND, it runs until
    you stop it.

    If you give no COMMAND, --control creates a control socket. Send requests to this socket, each a line with the JSON
    object {"command": NAME}. NAME is one of: ready (returns address and upstream of the stub), stats (returns counters
    of queries, failures and connections), reset-sessions (closes the connection, keeps tickets and tokens), forget
    (closes the connection, deletes tickets and tokens).

    \b
    crosslayer stub --upstream quic://192.0.2.1 --server-name dns.example.net --listen 127.0.0.1:5353
    crosslayer link 4g -- crosslayer stub --upstream 'quic://$CROSSLAYER_SERVER' --ca '$CROSSLAYER_CA' \\
        --server-name www.example.org -- kdig @127.0.0.1 www.example.org
    """
    from crosslayer.dns import Resumption
    from crosslayer.stub import StubSettings

    if ca is not None and upstream.lower().startswith(("udp:", "tcp:")):
        raise click.UsageError("udp and tcp have no certificate: leave --ca out.")
    settings = StubSettings(
        upstream,
        listen=listen,
        ca_file=ca,
        server_name=server_name,
        resumption=Resumption(resumption) if resumption else None,
        timeout_s=timeout,
        idle_timeout_s=idle_timeout,
        udp_retransmit_s=udp_retransmit,
        probe_idle_after_s=probe_idle_after,
    )
    _ask_for_consent(settings, given=consents)
    if not command:
        _run_forever(settings, metrics=metrics, control=control)
    if control is not None:
        raise click.UsageError("--control needs a stub without COMMAND: leave one of them out.")
    sys.exit(_run_command(settings, list(command), metrics=metrics))


def _ask_for_consent(settings: StubSettings, *, given: bool) -> None:
    """Obtain the user's consent if the upstream is an address outside this machine; `OutsideError` without consent."""
    from crosslayer.testbed import outside

    host = settings.upstream_host
    with contextlib.suppress(ValueError):  # `host` is a name, which `check_consent` checks
        if not outside.inside(host):
            outside.obtain_consent(f"The stub forwards every query to {host}.", host, given=given, ask=typed)
            outside.allow([host])
    settings.check_consent()


def _run_forever(settings: StubSettings, *, metrics: Path | None, control: Path | None) -> NoReturn:
    """Replace this process by the stub, which runs until it gets a signal and reports its own errors.

    Parameters
    ----------
    settings
        Settings of the stub.
    metrics
        File to which the stub appends one JSON line per query; None for standard output.
    control
        Path of the control socket; None for no socket.
    """
    from crosslayer import resources

    binary = str(resources.locate("stub").path)
    command = [binary, *settings.arguments(), "--metrics", str(metrics or "-")]
    if control is not None:
        command += ["--control", str(control)]
    os.execv(binary, command)


def _run_command(settings: StubSettings, command: list[str], *, metrics: Path | None) -> int:
    """Run a command together with the stub; returns the command's exit status (128 + signal if a signal ended it).

    The stub writes one JSON line per query to the file `metrics`. If `metrics` is None, these lines are printed to
    standard output after the command's output.

    Raises
    ------
    StubError
        If the stub does not start.
    """
    from crosslayer import process
    from crosslayer.stub import Stub

    with tempfile.TemporaryDirectory(prefix="crosslayer-stub-") as name:
        folder = Path(name)
        with Stub.start(subprocess.Popen, settings, folder, metrics_file=metrics) as stub:
            status = process.run_command(command)
        if metrics is None:
            sys.stdout.write(stub.metrics_file.read_text(encoding="utf-8"))
    return status
