"""The committed campaigns: `.gitignore` lists them, so a campaign that somebody measured into `data/raw` is not one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

CAMPAIGNS: Final = {
    name: ROOT / "data" / "raw" / name
    for name in re.findall(r"^!/data/raw/([\w-]+)/$", (ROOT / ".gitignore").read_text(encoding="utf-8"), re.MULTILINE)
}
"""Folders of the committed campaigns, by name."""
