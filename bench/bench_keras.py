"""What the linter says of the Keras pull requests: an older and a newer Keras side by side.

    python bench/bench_keras.py [FOLDER_WITH_BOTH]

Downloads keras 3.12.0 and 3.15.1 unless a folder with `keras-3.12.0/` and `keras-3.15.1/` is given, lints
both, and tells for each place that the pull requests were about how many findings it has, and from which
root it is hot. Written to bench/results/keras.json as well.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from pytest_dispatchguard.lint.check import Request, check

VERSIONS = ("3.12.0", "3.15.1")
PLACES = {
    "flatten to look for symbolic tensors": "any_symbolic_tensors",
    "wrapper built per call": "Operation.__call__",
    "mask and spec traversals of a call": "Layer.__call__",
    "mask put on outputs": "Layer._set_mask_metadata",
    "input spec looked at": "assert_input_compatibility",
}
RESULT = Path(__file__).resolve().parent / "results" / "keras.json"


def sources(folder: Path) -> dict[str, Path]:
    found = {v: folder / f"keras-{v}" for v in VERSIONS}
    for version, path in found.items():
        if path.is_dir():
            continue
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        subprocess.run([*command, f"keras=={version}"], check=True)
        with zipfile.ZipFile(folder / f"keras-{version}-py3-none-any.whl") as wheel:
            wheel.extractall(path)
    return found


def linted(path: Path) -> dict[str, list[dict[str, object]]]:
    report = check(Request(paths=(path,), cwd=path, jobs=2, cache=False)).report
    out: dict[str, list[dict[str, object]]] = {function: [] for function in PLACES.values()}
    for f in report.findings:
        if f.function in out and f.code[:3] in ("DG1", "DG3") and f.hot is not None:
            row = {"code": f.code, "path": f.path, "line": f.span.line, "root": f.hot.root}
            out[f.function].append(row)
    return out


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary)
        found = {version: linted(path) for version, path in sources(folder).items()}
    print(f"{'place':<38} {'function':<28} " + " ".join(f"{v:>8}" for v in VERSIONS) + "  hot from")
    for place, function in PLACES.items():
        counts = " ".join(f"{len(found[v][function]):>8}" for v in VERSIONS)
        roots = {row["root"] for v in VERSIONS for row in found[v][function]}
        print(f"{place:<38} {function:<28} {counts}  {', '.join(sorted(map(str, roots)))}")
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
