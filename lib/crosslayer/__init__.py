"""crosslayer: what encrypted DNS costs a web user, and what sharing QUIC between DNS and HTTP/3 gives back.

`measure` measures a campaign on a cluster, `open` opens a campaign that was measured, and `compare` compares resolvers.
Import every other name from the subpackage that defines it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosslayer.notebooks import open_campaign as open  # noqa: A004
    from crosslayer.notebooks.cluster import measure
    from crosslayer.notebooks.comparison_view import compare

__version__ = "1.0.0"

__all__ = ["__version__", "compare", "measure", "open"]


def __getattr__(name: str) -> Any:
    """Import `open`, `measure` and `compare` on first use.

    All three import libraries for data frames and charts. `import crosslayer` alone does not import these libraries,
    because the testbed and many commands do not need them.
    """
    if name == "open":
        from crosslayer.notebooks import open_campaign

        return open_campaign
    if name == "measure":
        from crosslayer.notebooks.cluster import measure

        return measure
    if name == "compare":
        from crosslayer.notebooks.comparison_view import compare

        return compare
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
