"""What the README shows of a run is what that run says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path


def test_the_screenful_is_what_the_command_says(root: Path) -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"```console\n\$ dispatchguard (check [^\n]*)\n(.*?)```\n", readme, re.DOTALL)
    assert shown is not None
    done = subprocess.run(
        [sys.executable, "-m", "pytest_dispatchguard", *shown[1].split(), "--no-cache"],
        cwd=root,
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == shown[2]
