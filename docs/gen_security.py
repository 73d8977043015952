"""Puts SECURITY.md into the site when mkdocs builds it; the file is where code hosts look for it.

Used as a mkdocs hook.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "SECURITY.md"


def on_files(files: Any, config: Any) -> Any:
    """Add the page, with links as they are from the docs' own folder."""
    from mkdocs.structure.files import File

    text = PAGE.read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, "security.md", content=text))
    return files
