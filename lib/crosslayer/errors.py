"""The base class of all foreseeable errors, and the escaping of foreign text in them."""

from __future__ import annotations

import copyreg
from typing import Any


def printable(text: str) -> str:
    """Text of a peer or another program, made safe for output: non-printable characters are escaped as in Python.

    Otherwise control characters would control the terminal, line feeds would forge output lines, and directional marks
    would reverse text.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


class CrosslayerError(Exception):
    """An error that a user can correct: what failed, where, and the next step.

    Parameters
    ----------
    what
        What went wrong, one sentence without a full stop.
    where
        File, link, page, round or address of the error.
    next_step
        What the user should do.
    """

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(what, where, next_step)
        self.what = what
        self.where = where
        self.next_step = next_step

    def __reduce__(self) -> tuple[Any, ...]:
        """Make unpickling create the error without `__init__`, because subclasses may have other parameters."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return printable(f"{text}. {self.next_step}" if self.next_step else text)
