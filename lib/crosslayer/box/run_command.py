"""Run the user's command in a box."""

from __future__ import annotations

import os
from pathlib import Path

from crosslayer.box.description import Description
from crosslayer.box.errors import BoxError
from crosslayer.process import run_command
from crosslayer.testbed import namespaces


def check_files(truth: Path | None, resolvers_out: Path | None) -> None:
    """Raise `BoxError` if the folder of a file to write is missing, or if the file of the truth is not empty."""
    for file in (truth, resolvers_out):
        if file is not None and not file.absolute().parent.is_dir():
            raise BoxError("is in a folder that does not exist", where=str(file), next_step="Create the folder first.")
    if truth is not None and truth.exists() and truth.stat().st_size:
        raise BoxError("is not empty", where=str(truth), next_step="Name a new file, or delete this one.")


def run_in_box(
    description: Description,
    command: list[str],
    *,
    seed: int,
    truth: Path | None = None,
    packets: bool = False,
    resolvers_out: Path | None = None,
) -> int:
    """Run a command in the client's namespace of a box; returns its exit status (128 + signal number after a signal).

    Raises `BoxStartError` if the box does not start, and `BoxError` if a file cannot be written.
    """
    from crosslayer.box.box import Box  # not at the top: code outside the namespaces needs no testbed

    with Box(description, seed=seed, truth=truth and truth.absolute(), packets=packets) as box:
        resolvers = resolvers_out or box.folder / "resolvers.toml"
        try:
            resolvers.write_text(box.resolver_list(), encoding="utf-8")
        except OSError as error:
            raise BoxError(
                f"cannot be written ({error.strerror})", where=str(resolvers), next_step="Name another file."
            ) from error
        environment = dict(os.environ, CROSSLAYER_RESOLVERS=str(resolvers.absolute()), CROSSLAYER_CA=str(box.ca_file))
        del environment[namespaces.MARK]  # so that a `crosslayer` started by the command creates its own namespaces
        box.start()
        return run_command(command, environment)
