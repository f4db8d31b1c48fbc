"""The one shape of every foreseeable fault. Rooms subclass it; nothing else may live here."""

from __future__ import annotations


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

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}. {self.next_step}" if self.next_step else text
