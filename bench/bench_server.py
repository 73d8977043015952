"""Measures the language server: how long an editor waits for what it is told of a change, and for the index.

    python bench/bench_server.py            # downloads keras==3.15.1 into a temporary folder
    python bench/bench_server.py FOLDER     # or takes a package that lies there

A real server, spoken to over its standard streams. Every edit is one a person makes: a keystroke in a hot
function, one in another file, a function added (told from the hotness there was, and again from the new), a
keystroke while hotness is being found out. Seconds are from the change to what is told of it; the pause after
the last keystroke, in which the server waits for the next one, is among them and told beside them. The table
goes to stdout, the same numbers with the machine they are from to bench/results/server.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench_lint import (
    KERAS,
    BenchError,
    copied,
    download,
    library_files,
    machine,
    proportional_kib,
    say,
    version_of,
)
from lsprotocol import types
from pygls.lsp.client import LanguageClient

from pytest_dispatchguard.server.server import PAUSE

RESULTS = Path(__file__).resolve().parent / "results" / "server.json"
HOT = "src/layers/layer.py"
OTHER = "src/ops/nn.py"
CALL = "    def __call__(self, *args, **kwargs):\n"
GOAL = {"told after a keystroke s": 0.3}
"""The pause among it."""
LONG = 300


class Editor:
    """One text at a time, and when something was told of it."""

    def __init__(self) -> None:
        self.client = LanguageClient("bench", "1")
        self.told: list[tuple[str, int | None, float, int]] = []
        """Text, version, when, how many findings."""
        self.news = asyncio.Event()
        self.version = 0

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def told(params: types.PublishDiagnosticsParams) -> None:
            now = time.perf_counter()
            self.told.append((params.uri, params.version, now, len(params.diagnostics)))
            self.news.set()

    async def start(self, root: Path) -> None:
        words = ("-m", "pytest_dispatchguard", "server")
        await self.client.start_io(sys.executable, *words, cwd=root, env={**os.environ})
        asked = types.InitializeParams(types.ClientCapabilities(), root_uri=root.as_uri())
        await self.client.initialize_async(asked)
        self.client.initialized(types.InitializedParams())

    async def stop(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()

    @property
    def mib(self) -> float:
        """What the server holds."""
        process = self.client._server
        assert process is not None
        return round(proportional_kib(process.pid) / 1024, 1)

    async def opened(self, path: Path) -> float:
        """Seconds until something is told of a file that is opened."""
        item = types.TextDocumentItem(path.as_uri(), "python", self.next(), path.read_text("utf-8"))
        start = time.perf_counter()
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return await self.answer(path.as_uri(), self.version, 1) - start

    def type(self, path: Path, text: str) -> None:
        document = types.VersionedTextDocumentIdentifier(self.next(), path.as_uri())
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    async def typed(self, path: Path, text: str, answers: int = 1) -> float:
        """Seconds until that many answers to a change."""
        start = time.perf_counter()
        self.type(path, text)
        return await self.answer(path.as_uri(), self.version, answers) - start

    async def answer(self, uri: str, version: int, number: int) -> float:
        """When the answer with that number was given."""

        def times() -> list[float]:
            return [when for told, of, when, _ in self.told if told == uri and of == version]

        async def wait() -> None:
            while len(times()) < number:
                self.news.clear()
                await self.news.wait()

        try:
            await asyncio.wait_for(wait(), LONG)
        except asyncio.TimeoutError:
            raise BenchError(f"nothing was told of {uri} in {LONG} s") from None
        return times()[number - 1]

    def next(self) -> int:
        self.version += 1
        return self.version


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "package", nargs="?", type=Path, help=f"a package folder (default: {KERAS})"
    )
    parser.add_argument("--repeats", type=int, default=20, help="edits of each kind (default: 20)")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-server-") as scratch:
            results = asyncio.run(measured(options, Path(scratch)))
    except BenchError as error:
        print(f"bench_server: {error}", file=sys.stderr)
        return 2
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    return 0


async def measured(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    package, label = options.package, KERAS
    if package is None:
        package = download(scratch / "download")
    else:
        label = package.name
    tree = copied(package, library_files(package), scratch / "tree")
    hot, other = (tree.root / package.name / name for name in (HOT, OTHER))
    for path in (hot, other):
        if not path.exists():
            raise BenchError(f"{path.relative_to(tree.root)} is not there to be edited")
    say(f"{label}: {len(tree.files)} files, {tree.lines:,} lines")
    index = {}
    for name in ("nothing known", "known from before"):
        editor = Editor()
        await editor.start(tree.root)
        index[name] = await editor.opened(hot)
        say(f"first file told, {name}: {index[name]:.2f} s")
        if name == "nothing known":
            await editor.stop()
    series = await keystrokes(editor, hot, other, options.repeats)
    mib = editor.mib
    await editor.stop()
    medians = {name: statistics.median(seconds) for name, seconds in series.items()}
    return {
        "machine": {**machine(), "load": [round(load, 1) for load in os.getloadavg()]},
        "tree": {"package": label, "files": len(tree.files), "lines": tree.lines},
        "versions": {name: version_of(name) for name in ("pytest-dispatchguard", "pygls")},
        "pause_s": PAUSE,
        "first_file_s": {name: round(seconds, 3) for name, seconds in index.items()},
        "series": [
            {"name": name, "seconds": [round(s, 4) for s in found], "median": medians[name]}
            for name, found in series.items()
        ],
        "mib": mib,
        "goal": GOAL,
        "met": {
            name: median <= GOAL["told after a keystroke s"]
            for name, median in medians.items()
            if "again" not in name
        },
    }


async def keystrokes(
    editor: Editor, hot: Path, other: Path, repeats: int
) -> dict[str, list[float]]:
    texts = {path: path.read_text("utf-8") for path in (hot, other)}
    await editor.opened(other)

    def in_call(number: int) -> str:
        return texts[hot].replace(CALL, f"{CALL}        assert {number}\n")

    def in_function(number: int) -> str:
        lines = texts[other].splitlines(keepends=True)
        at = next(i for i, line in enumerate(lines) if line.startswith("    return "))
        return "".join((*lines[:at], f"    assert {number}\n", *lines[at:]))

    def more(number: int) -> str:
        return f"{texts[hot]}\n\ndef added_{number}():\n    return {number}\n"

    found: dict[str, list[float]] = {}

    async def each(name: str, path: Path, edit: Callable[[int], str]) -> None:
        found[name] = [await editor.typed(path, edit(n)) for n in range(1, repeats + 1)]
        say(f"{name}: {statistics.median(found[name]):.3f} s")

    await each(f"a keystroke in a hot function ({hot.name}, 2,000 lines)", hot, in_call)
    await each(f"a keystroke in another file ({other.name})", other, in_function)
    early, late = "a function added, told first", "a function added, told again"
    while_solving = "a keystroke while hotness is found out"
    found |= {early: [], late: [], while_solving: []}
    for number in range(1, repeats + 1):
        start = time.perf_counter()
        found[early].append(await editor.typed(hot, more(number)))
        uri, version = hot.as_uri(), editor.version
        found[late].append(await editor.answer(uri, version, 2) - start)
    for number in range(1, repeats + 1):
        await editor.typed(hot, more(-number).replace("-", "_"))
        await asyncio.sleep(0.3)  # hotness is being found out from here on, if not before
        text = more(-number).replace("-", "_").replace(CALL, f"{CALL}        assert {number}\n")
        found[while_solving].append(await editor.typed(hot, text))
        await asyncio.sleep(3)
    return found


def table(results: dict[str, Any]) -> str:
    pause = results["pause_s"]
    width = max(len(s["name"]) for s in results["series"])
    lines = [f"{'':{width}}  {'median s':>8}  {'max s':>7}  beside the pause of {pause} s"]
    for s in results["series"]:
        lines.append(
            f"{s['name']:{width}}  {s['median']:8.3f}  {max(s['seconds']):7.3f}  "
            f"{s['median'] - pause:.3f}"
        )
    for name, seconds in results["first_file_s"].items():
        lines.append(f"first file told, {name}: {seconds:.2f} s")
    lines.append(f"the server holds {results['mib']} MiB")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
