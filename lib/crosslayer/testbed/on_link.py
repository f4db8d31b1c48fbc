"""A command of the user's own on an emulated link, with the server at the far end."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import asdict
from pathlib import Path

from crosslayer import pages
from crosslayer.links import Profile
from crosslayer.packets import ABOUT, PACKETS, About, PacketsError, Ring, kept_files, of_lines
from crosslayer.process import run_command
from crosslayer.testbed import network, private
from crosslayer.testbed.testbed import Testbed


def run_on_link(
    profile: Profile, command: list[str], *, backend: str, with_server: bool, retry: bool, capture: Path | None = None
) -> int:
    """Run a command in the client's namespace and return its exit status (128 + signal where one ended it).

    With `capture`, a file, its packets are kept there with the keys of the server and of clients that know
    SSLKEYLOGFILE, and beside it what they are of.

    Where the testbed, the pages or the server cannot be had, `CrosslayerError`. A link that fails its check only warns.
    """
    keys, events = private.ROOT / "keys.log", None
    if capture is not None:
        keys.touch(mode=0o600)
        os.environ["SSLKEYLOGFILE"] = str(keys)
    environment = dict(os.environ, CROSSLAYER_SERVER=network.SERVER_ADDRESS)
    if capture is None:
        os.environ.pop("SSLKEYLOGFILE", None)  # the command's, where the user's shell has one, and not the server's
    del environment[private.MARK]  # a `crosslayer` that the command starts makes namespaces of its own
    with contextlib.ExitStack() as stack:
        testbed = stack.enter_context(Testbed(backend if profile.shaped else "plain"))
        if with_server:
            spec_dir = pages.find_spec_dir()
            specs = pages.load_pages(spec_dir)
            server, _addresses = stack.enter_context(testbed.serve(specs.values(), spec_dir=spec_dir, retry=retry))
            events = server.events_file
            environment["CROSSLAYER_CA"] = str(server.ca_file)
        private.use_resolver(network.SERVER_ADDRESS)
        check = testbed.set_link(profile)
        if not check.passed:
            print(f"crosslayer: the link is not what its profile says: {check.verdict}", file=sys.stderr)
        ring = None if capture is None else Ring()
        words = [_expanded(word, environment) for word in command]
        with testbed.cross_traffic() as cross:
            if ring is not None:
                ring.start()
            testbed.rewind()
            status = run_command(words, environment)
        if ring is not None and capture is not None:
            frames, missing = ring.take()
            about = About(
                condition=" ".join(command),
                profile=asdict(profile),
                missing=missing,
                server=[] if events is None else of_lines(events.read_text(encoding="utf-8")),
            )
            _keep(capture, kept_files(about, frames, keys.read_text(encoding="ascii")))
        if cross.mbit is not None:
            print(f"crosslayer: beside it, cross-traffic had {cross.mbit:.2f} Mbit/s", file=sys.stderr)
        return status


def _keep(capture: Path, files: dict[str, bytes]) -> None:
    try:
        capture.write_bytes(files[PACKETS])
        capture.with_suffix(ABOUT).write_bytes(files[ABOUT])
    except OSError as error:
        raise PacketsError(
            f"cannot be written ({error.strerror})", where=str(capture), next_step="Name another file with --capture."
        ) from error


def _expanded(word: str, environment: dict[str, str]) -> str:
    """A word with our two variables filled in: the user's own shell cannot know them, they exist only here.

    Unquoted, that shell has made a lone `@` of `@$CROSSLAYER_SERVER`, as DNS clients take their server.
    """
    if word == "@":
        return f"@{environment['CROSSLAYER_SERVER']}"
    for name in ("CROSSLAYER_SERVER", "CROSSLAYER_CA"):
        word = word.replace(f"${{{name}}}", environment.get(name, "")).replace(f"${name}", environment.get(name, ""))
    return word
