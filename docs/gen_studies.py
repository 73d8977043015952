"""Puts the plots of studies into the site as the benches drew them, when mkdocs builds it: nothing is twice.

Used as a mkdocs hook: a page shows ``bench/results/NAME.svg`` as ``NAME.svg`` beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "bench" / "results"


def on_files(files: Any, config: Any) -> Any:
    """Add the plots to the site, in the folder of the studies."""
    from mkdocs.structure.files import File

    for plot in sorted(RESULTS.glob("*.svg")):
        files.append(File.generated(config, f"studies/{plot.name}", abs_src_path=str(plot)))
    return files
