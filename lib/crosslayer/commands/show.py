"""`crosslayer show`: draw a captured load as a waterfall."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from crosslayer.commands.common import PATH
from crosslayer.errors import CrosslayerError


@click.command("show")
@click.argument("load", type=PATH)
@click.option("--out", type=PATH, help="HTML file to write.  [default: LOAD with .html in place of .pcapng]")
def command(load: Path, out: Path | None) -> None:
    """Draw one captured LOAD as a waterfall: lookup, connection, requests, events at the server, every packet.

    LOAD is the .pcapng file of a captured load, or a folder, e.g. a dataset. For a folder, the command only lists the
    captured loads in it, sorted by link, by page, and from slow to fast. The waterfall is one HTML file that needs no
    network; on a desktop, the command opens it in the browser. The .pcapng file contains the keys, so Wireshark and
    tshark can decrypt it.

    \b
    crosslayer measure --study one-connection --size smoke --capture pcap --out data/local/mine
    crosslayer show data/local/mine
    crosslayer show data/local/mine/captures/4g/wikipedia.org/0/doh3-0-rtt-and-page-on-one-connection.pcapng
    crosslayer link 4g --capture mine.pcapng -- curl -k https://www.example.org/ && crosslayer show mine.pcapng
    """
    from crosslayer.report.waterfall import captured, waterfall

    if load.is_dir():
        loads = captured(load)
        if not loads:
            raise CrosslayerError(
                "contains no captured load",
                where=str(load),
                next_step="Measure with --capture pcap.",
            )
        for listed in loads:
            click.echo(f"{'' if listed.length_ms is None else f'{listed.length_ms:.1f} ms':>12}  {listed.file}")
        return
    page = out or load.with_suffix(".html")
    try:
        page.write_text(waterfall(load), encoding="utf-8")
    except OSError as error:
        raise CrosslayerError(
            f"cannot be written ({error.strerror})", where=str(page), next_step="Name another file with --out."
        ) from error
    click.echo(str(page))
    if sys.stdout.isatty() and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        click.launch(str(page))
