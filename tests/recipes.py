"""Takes blocks out of the docs, as they stand."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def blocks(page: str, language: str, heading: str = "") -> list[str]:
    """The blocks of a page, or of the section under a heading."""
    text = (DOCS / page).read_text(encoding="utf-8")
    if heading:
        text = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
