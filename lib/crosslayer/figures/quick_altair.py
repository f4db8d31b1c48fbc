"""Import Altair without the grammars of IRIs that jsonschema compiles if `rfc3987_syntax` is installed.

JupyterLab installs that package. Compiling its 39 grammars takes 0.8 s in each process, and no chart has an IRI.
"""

from __future__ import annotations

import sys

_GRAMMARS = "rfc3987_syntax"

if _GRAMMARS not in sys.modules:
    sys.modules[_GRAMMARS] = None  # type: ignore[assignment]  # its import fails, so jsonschema does not use it
    try:
        import altair  # noqa: F401
    finally:
        del sys.modules[_GRAMMARS]
