"""The base class of all foreseeable errors, and the escaping of foreign text in them."""

from __future__ import annotations

import copyreg
from typing import Any


def printable(text: str) -> str:
    """Text of a peer or of another program as it may be shown: what is no plain character is escaped, as in Python.

    A terminal obeys control characters, a new line forges a row, and marks of direction turn words around.
    """
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


class CrosslayerError(Exception):
    """A fault a user can act on: what failed, where, and the next step.

    Parameters
    ----------
    what
        What went wrong, one sentence without a full stop.
    where
        The file, link, page, round or address it concerns.
    next_step
        What the user should do now.
    """

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(what, where, next_step)
        self.what = what
        self.where = where
        self.next_step = next_step

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle: without `__init__`, whose parameters a subclass may change."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return printable(f"{text}. {self.next_step}" if self.next_step else text)
