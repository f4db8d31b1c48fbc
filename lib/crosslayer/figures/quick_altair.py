"""Import Altair without the grammars of IRIs that jsonschema compiles where `rfc3987_syntax` is installed.

JupyterLab installs that package. Compiling its 39 grammars takes 0.8 s in each process. No chart has an IRI to check.
"""

from __future__ import annotations

import sys

_GRAMMARS = "rfc3987_syntax"

if _GRAMMARS not in sys.modules:
    sys.modules[_GRAMMARS] = None  # type: ignore[assignment]  # an import of it fails; jsonschema goes without
    try:
        import altair  # noqa: F401
    finally:
        del sys.modules[_GRAMMARS]
