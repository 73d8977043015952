"""The language server as an editor meets it: a process of its own, spoken to over its standard streams."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls", reason="the server needs pygls")

from lsprotocol import types
from pygls.exceptions import JsonRpcInternalError
from pygls.lsp.client import LanguageClient

LONG = 90
"""Seconds until an answer is given up: no test is about speed."""

OPS = """\
import inspect

import torch


def helper(x: torch.Tensor):
    mask = torch.zeros(3).to(x.device)
    return x * mask


def other(x: torch.Tensor):
    return inspect.signature(x)
"""
MODEL = """\
import os

import torch

from pkg.ops import helper, other


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor):
        name = "ä𝄞"; way = os.environ.get("WAY")  # ü
        return helper(x)

    def setup(self, x: torch.Tensor):
        return other(x)
"""
FILES = {
    "pyproject.toml": "[tool.dispatchguard]\n",
    "pkg/__init__.py": "",
    "pkg/ops.py": OPS,
    "pkg/model.py": MODEL,
}


class Editor:
    """An editor with a server: it keeps texts, sends what it does to them, and takes what it is told."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self.hears = True
        """Whether it lets a server show what it works at."""
        self.texts: dict[str, str] = {}
        self.versions: dict[str, int] = {}
        self.told: dict[str, types.PublishDiagnosticsParams] = {}
        self.messages: list[str] = []
        self.watched: list[str] = []
        self.works: dict[str, list[Any]] = {}
        """What is shown of work, by its token."""
        self.news = asyncio.Event()
        self.client = LanguageClient("editor", "1")
        client = self.client

        @client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def told(params: types.PublishDiagnosticsParams) -> None:
            self.told[params.uri] = params
            self.news.set()

        @client.feature(types.WINDOW_SHOW_MESSAGE)
        def said(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)
            self.news.set()

        @client.feature(types.CLIENT_REGISTER_CAPABILITY)
        def register(params: types.RegistrationParams) -> None:
            for registration in params.registrations:
                for watcher in registration.register_options["watchers"]:  # type: ignore[index]  # as it came
                    self.watched.append(watcher["globPattern"])

        @client.feature(types.WINDOW_WORK_DONE_PROGRESS_CREATE)
        def work(params: types.WorkDoneProgressCreateParams) -> None:
            if not self.hears:
                raise JsonRpcInternalError("not now")
            self.works[str(params.token)] = []

        @client.feature(types.PROGRESS)
        def works(params: types.ProgressParams) -> None:
            self.works[str(params.token)].append(params.value)
            self.news.set()

    def open(self, path: Path | str, text: str | None = None, language: str = "python") -> str:
        uri = path if isinstance(path, str) else path.as_uri()
        if text is None:
            assert isinstance(path, Path)
            text = path.read_bytes().decode()
        self.texts[uri], self.versions[uri] = text, 1
        item = types.TextDocumentItem(uri, language, 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def type(self, uri: str, text: str) -> None:
        self.versions[uri] += 1
        self.texts[uri] = text
        document = types.VersionedTextDocumentIdentifier(self.versions[uri], uri)
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def save(self, uri: str) -> None:
        place(uri).write_bytes(self.texts[uri].encode())
        document = types.TextDocumentIdentifier(uri)
        self.client.text_document_did_save(types.DidSaveTextDocumentParams(document))

    def close(self, uri: str) -> None:
        document = types.TextDocumentIdentifier(uri)
        self.told.pop(uri, None)
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(document))

    def changed_on_disk(self, *paths: Path) -> None:
        events = [types.FileEvent(p.as_uri(), types.FileChangeType.Changed) for p in paths]
        self.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams(events))

    async def until(self, holds: Callable[[], object]) -> None:
        """Waits for the server to have said what makes something hold."""

        async def wait() -> None:
            while not holds():
                self.news.clear()
                await self.news.wait()

        try:
            await asyncio.wait_for(wait(), LONG)
        except asyncio.TimeoutError:
            raise AssertionError(f"{self.messages} {self.told}") from None

    async def found(self, uri: str, *codes: str) -> list[types.Diagnostic]:
        """The diagnostics of a text as it is now, once they have these codes."""
        await self.until(lambda: self.is_told(uri) and self.codes(uri) == list(codes))
        return list(self.told[uri].diagnostics)

    def is_told(self, uri: str) -> bool:
        return uri in self.told and self.told[uri].version == self.versions[uri]

    def codes(self, uri: str) -> list[str]:
        return [str(d.code) for d in self.told[uri].diagnostics]

    async def actions(
        self, uri: str, at: types.Range | None = None, *only: str
    ) -> list[types.CodeAction]:
        everywhere = types.Range(types.Position(0, 0), types.Position(10_000, 0))
        context = types.CodeActionContext([], only=list(only) or None)  # type: ignore[arg-type]  # words
        document = types.TextDocumentIdentifier(uri)
        found = await self.client.text_document_code_action_async(
            types.CodeActionParams(document, at or everywhere, context)
        )
        return [a for a in found or [] if isinstance(a, types.CodeAction)]

    def apply(self, edit: types.WorkspaceEdit | None) -> None:
        """Makes an edit, all of it at once, as editors do."""
        assert edit is not None and edit.document_changes is not None
        for change in edit.document_changes:
            assert isinstance(change, types.TextDocumentEdit)
            uri = change.text_document.uri
            assert change.text_document.version == self.versions[uri]
            text = self.texts[uri]
            for one in sorted(change.edits, key=lambda e: -self.offset(text, e.range.start)):
                assert isinstance(one, types.TextEdit)
                start, end = self.offset(text, one.range.start), self.offset(text, one.range.end)
                text = text[:start] + one.new_text + text[end:]
            self.type(uri, text)

    def offset(self, text: str, at: types.Position) -> int:
        """The character at a position, counted by hand in the encoding that was agreed on."""
        units = {"utf-8": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}[self.encoding]
        width = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[self.encoding]
        lines = text.split("\n")
        before = sum(len(line) + 1 for line in lines[: at.line])
        if at.line >= len(lines):
            return len(text)
        head = lines[at.line].encode(units)[: at.character * width]
        return before + len(head.decode(units))

    def marked(self, uri: str) -> list[tuple[str, str]]:
        """Code and text of each place that is shown."""
        text = self.texts[uri]
        return [
            (str(d.code), text[self.offset(text, d.range.start) : self.offset(text, d.range.end)])
            for d in self.told[uri].diagnostics
        ]


def place(uri: str) -> Path:
    from pygls.uris import to_fs_path

    path = to_fs_path(uri)
    assert path is not None
    return Path(path)


@asynccontextmanager
async def editor(
    root: Path | None,
    encodings: tuple[str, ...] = ("utf-16",),
    *,
    resolves: bool = True,
    words: Sequence[str] = ("-m", "pytest_dispatchguard", "server"),
    bars: bool = False,
) -> AsyncIterator[Editor]:
    """An editor that has a folder open, and has started the server."""
    made = Editor(encodings[0])
    await made.client.start_io(sys.executable, *words, cwd=root, env={**os.environ})
    able = types.ClientCapabilities(
        general=types.GeneralClientCapabilities(
            position_encodings=[types.PositionEncodingKind(e) for e in encodings]
        ),
        workspace=types.WorkspaceClientCapabilities(
            workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
            did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(
                dynamic_registration=True
            ),
        ),
        window=types.WindowClientCapabilities(work_done_progress=bars),
        text_document=types.TextDocumentClientCapabilities(
            code_action=types.CodeActionClientCapabilities(
                resolve_support=types.ClientCodeActionResolveOptions(["edit"]) if resolves else None
            )
        ),
    )
    started = await made.client.initialize_async(
        types.InitializeParams(able, root_uri=None if root is None else root.as_uri())
    )
    assert started.capabilities.position_encoding == made.encoding
    made.client.initialized(types.InitializedParams())
    process = made.client._server
    assert process is not None
    try:
        yield made
        await asyncio.wait_for(made.client.shutdown_async(None), LONG)
        made.client.exit(None)
        assert await asyncio.wait_for(process.wait(), LONG) == 0
        assert not any("internal error" in message for message in made.messages)
    finally:
        if process.returncode is None:
            process.kill()
        await made.client.stop()


Scenario = Callable[[Editor], Awaitable[None]]


def play(root: Path | None, scenario: Scenario, *encodings: str, resolves: bool = True) -> None:
    async def run() -> None:
        async with editor(root, encodings or ("utf-16",), resolves=resolves) as made:
            await scenario(made)

    asyncio.run(run())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for rel, text in FILES.items():
        write(tmp_path / rel, text)
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


def command(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command over the same project."""
    return subprocess.run(
        [sys.executable, "-m", "pytest_dispatchguard", "check", *words],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def checked(root: Path, *words: str) -> list[dict[str, Any]]:
    done = command(root, "--format", "json", *words)
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


def places(made: Editor, uris: Mapping[str, str]) -> list[tuple[object, ...]]:
    """What is shown, as `--format json` has it."""
    found = []
    for rel, uri in sorted(uris.items()):
        text = made.texts[uri]
        for d in made.told[uri].diagnostics:
            spot: list[int] = []
            for at in (d.range.start, d.range.end):
                line_start = text.rfind("\n", 0, made.offset(text, types.Position(at.line, 0))) + 1
                spot += at.line + 1, made.offset(text, at) - line_start + 1
            found.append((rel, d.code, *spot, d.message.splitlines()[0]))
    return found


def as_places(findings: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    keys = ("path", "code", "line", "column", "end_line", "end_column", "message")
    return [tuple(f[key] for key in keys) for f in findings]


# -- diagnostics ------------------------------------------------------------------------------------


def test_what_is_flagged_says_why_and_what_it_costs(root: Path) -> None:
    async def scenario(made: Editor) -> None:
        uri = made.open(root / "pkg/ops.py")
        (found,) = await made.found(uri, "DG504")
        assert found.source == "dispatchguard"
        assert found.severity == types.DiagnosticSeverity.Warning
        lines = found.message.splitlines()
        assert lines[0] == checked(root, "pkg/ops.py")[0]["message"]
        assert lines[1:] == [
            "hot: forward of a torch.nn.Module: pkg.model.Model.forward -> pkg.ops.helper",
            "waits for the device",
            "fix: create it on the device",
        ]
        assert found.code_description is not None
        assert found.code_description.href.endswith("/rules/DG504/")
        assert made.marked(uri) == [("DG504", "torch.zeros(3).to(x.device)")]
        at = types.Position(found.range.start.line, found.range.start.character + 3)
        page = await made.client.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(uri), at)
        )
        assert page is not None and isinstance(page.contents, types.MarkupContent)
        assert "**DG504 " in page.contents.value
        assert "Price: waits for the device." in page.contents.value
        assert "## " not in page.contents.value
        nothing = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(0, 0))
        assert await made.client.text_document_hover_async(nothing) is None
        assert made.messages == []

    play(root, scenario)


@pytest.mark.parametrize("encodings", [("utf-16",), ("utf-8", "utf-16"), ("utf-32",)])
def test_places_are_counted_as_was_agreed(root: Path, encodings: tuple[str, ...]) -> None:
    async def scenario(made: Editor) -> None:
        uri = made.open(root / "pkg/model.py")
        await made.found(uri, "DG603")
        assert made.marked(uri) == [("DG603", 'os.environ.get("WAY")')]
        assert places(made, {"pkg/model.py": uri}) == as_places(checked(root, "pkg/model.py"))

    play(root, scenario, *encodings)


def test_what_is_only_maybe_so_is_for_the_pedantic(root: Path) -> None:
    text = MODEL.replace("return helper(x)", "return bool(y)")
    text = text.replace("x: torch.Tensor)", "x: torch.Tensor, y)", 1)

    async def scenario(made: Editor) -> None:
        uri = made.open(root / "pkg/model.py", text)
        await made.found(uri, "DG603")
        write(root / "pyproject.toml", "[tool.dispatchguard]\npedantic = true\n")
        made.changed_on_disk(root / "pyproject.toml")
        (_, found) = await made.found(uri, "DG603", "DG401")
        assert found.severity == types.DiagnosticSeverity.Hint
        assert found.message.startswith("(maybe) ")

    play(root, scenario)


def test_notes_are_information(root: Path) -> None:
    text = MODEL.replace("return helper(x)", "return bool(x.sum())")

    async def scenario(made: Editor) -> None:
        uri = made.open(root / "pkg/model.py", text)
        (_, found) = await made.found(uri, "DG603", "DG401")
        assert found.severity == types.DiagnosticSeverity.Information
        assert found.message.startswith("(note) ")
        write(root / "pyproject.toml", "[tool.dispatchguard]\nnotes = false\n")
        made.changed_on_disk(root / "pyproject.toml")
        await made.found(uri, "DG603")

    play(root, scenario)


def test_texts_count_before_they_are_saved(root: Path) -> None:
    async def scenario(made: Editor) -> None:
        ops, model = made.open(root / "pkg/ops.py"), made.open(root / "pkg/model.py")
        await made.found(ops, "DG504")
        made.type(model, MODEL.replace("return helper(x)", "return other(x)"))
        await made.found(ops, "DG601")
        assert made.marked(ops) == [("DG601", "inspect.signature(x)")]
        made.close(model)
        await made.found(ops, "DG504")
        assert list(made.told[model].diagnostics) == []

    play(root, scenario)


def test_broken_syntax_is_told_and_gets_well_again(root: Path) -> None:
    async def scenario(made: Editor) -> None:
        ops, model = made.open(root / "pkg/ops.py"), made.open(root / "pkg/model.py")
        await made.found(model, "DG603")
        made.type(model, MODEL.replace("helper(x)", "helper(x"))
        (broken,) = await made.found(model, "DG001")
        assert broken.severity == types.DiagnosticSeverity.Error
        assert made.codes(ops) == ["DG504"]
        made.save(model)
        await made.found(ops)
        made.type(model, MODEL)
        await made.found(model, "DG603")
        await made.found(ops, "DG504")

    play(root, scenario)


def test_texts_without_a_file_and_files_elsewhere(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lone = tmp_path_factory.mktemp("elsewhere") / "lone.py"
    text = MODEL.replace("from pkg.ops import helper, other\n", "")
    write(lone, text)
    installed = lone.parent / "site-packages" / "thing.py"
    write(installed, text)

    async def scenario(made: Editor) -> None:
        await made.found(made.open("untitled:Untitled-1", text), "DG603")
        other = made.open(lone)
        await made.found(other, "DG603")
        await made.found(made.open(root / "pkg/new.py", text), "DG603")
        lone.unlink()
        made.changed_on_disk(lone)
        made.type(other, text + "\n")
        await made.found(other, "DG603")
        skipped = made.open(installed)
        toml = made.open(root / "pyproject.toml", language="toml")
        last = made.open(root / "pkg/ops.py")
        await made.found(last, "DG504")
        assert skipped not in made.told
        assert toml not in made.told
        assert not (lone.parent / ".dispatchguard").exists()

    play(root, scenario)


def test_without_a_folder(root: Path) -> None:
    async def scenario(made: Editor) -> None:
        await made.found(made.open(root / "pkg/ops.py"), "DG504")

    play(None, scenario)


def test_a_broken_configuration_is_said_once_and_the_last_good_one_stays(root: Path) -> None:
    async def scenario(made: Editor) -> None:
        uri = made.open(root / "pkg/ops.py")
        await made.found(uri, "DG504")
        assert "**/pyproject.toml" in made.watched
        for _ in range(2):
            write(root / "pyproject.toml", "[tool.dispatchguard]\nselct = []\n")
            made.changed_on_disk(root / "pyproject.toml")
            made.type(uri, made.texts[uri] + "# more\n")
            await made.found(uri, "DG504")
        (said,) = made.messages
        assert 'unknown key "selct"; did you mean "select"?' in said
        write(root / "pyproject.toml", '[tool.dispatchguard]\nignore = ["DG504"]\n')
        made.changed_on_disk(root / "pyproject.toml")
        await made.found(uri)

    play(root, scenario)


def test_a_configuration_that_never_was_good(root: Path) -> None:
    write(root / "pyproject.toml", "[tool.dispatchguard\n")

    async def scenario(made: Editor) -> None:
        uri = made.open(root / "pkg/ops.py")
        await made.until(lambda: made.messages)
        assert "not valid TOML" in made.messages[0]
        write(root / "pyproject.toml", "")
        made.save(uri)  # editors that watch nothing tell of what they save
        await made.found(uri, "DG504")

    play(root, scenario)


# -- while a project is read -------------------------------------------------------------------------

IMPATIENT = """
import sys
from pytest_dispatchguard.report import progress
progress.PATIENCE = progress.EVERY = 0.001
sys.argv = ["dispatchguard", "server"]
from pytest_dispatchguard.cli import command
command()
"""
"""The server, which tells at once that something takes long."""


@pytest.mark.parametrize("able", ["shows", "refuses", "cannot"])
def test_what_is_done_is_shown_while_a_project_is_read(root: Path, able: str) -> None:
    files = 300 if able == "shows" else 60
    for number in range(files):
        write(root / f"more/part{number}.py", MODEL)

    async def run() -> None:
        words = ("-c", IMPATIENT)
        async with editor(root, words=words, bars=able != "cannot") as made:
            made.hears = able == "shows"
            await made.found(made.open(root / "pkg/ops.py"), "DG504")
            if able != "shows":
                assert made.works == {}
                return
            # Looking at the disk again is work as well, and may be over before it is shown.
            token = next(iter(made.works))
            await made.until(
                lambda: made.works[token] and made.works[token][-1].get("kind") == "end"
            )
            begin, *reports, _ = made.works[token]
            assert begin["kind"] == "begin"
            assert begin["title"] == f"dispatchguard: {root.name}"
            assert [one["kind"] for one in reports] == ["report"] * len(reports)
            said = [one.get("message") for one in (begin, *reports)]
            assert {one.partition(" ")[0] for one in said if one} <= {"reading", "finding"}
            reading = [one for one in said if one and one.startswith("reading ")]
            assert reading and all(one.endswith(f"/{files + 3}") for one in reading)
            shares = [one["percentage"] for one in reports if one.get("percentage") is not None]
            assert shares == sorted(shares)

    asyncio.run(run())


# -- what is done about it --------------------------------------------------------------------------


def test_a_fix_an_unsafe_fix_and_a_comment(root: Path) -> None:
    async def scenario(made: Editor) -> None:
        uri = made.open(root / "pkg/ops.py")
        (found,) = await made.found(uri, "DG504")
        actions = await made.actions(uri, found.range, "quickfix")
        assert [a.title for a in actions] == [
            "DG504: create it on the device",
            "DG504: ignore here",
        ]
        fix, ignore = actions
        assert fix.is_preferred and not ignore.is_preferred
        assert fix.diagnostics is not None and fix.diagnostics[0].code == "DG504"
        made.apply(ignore.edit)
        line = "    mask = torch.zeros(3).to(x.device)  # dispatchguard: ignore[DG504]\n"
        assert line in made.texts[uri]
        await made.found(uri)
        made.type(uri, OPS)
        await made.found(uri, "DG504")
        (fix, _) = await made.actions(uri, found.range, "quickfix")
        made.apply(fix.edit)
        assert "mask = torch.zeros(3, device=x.device)\n" in made.texts[uri]
        await made.found(uri)
        assert await made.actions(uri) == []

    play(root, scenario)


def test_an_unsafe_fix_says_so(root: Path) -> None:
    fixtures = Path(__file__).resolve().parents[2] / "fixtures"
    text = (fixtures / "DG604" / "specimen.py").read_text(encoding="utf-8")

    async def scenario(made: Editor) -> None:
        uri = made.open(root / "pkg/log.py", text)
        found, _ = await made.found(uri, "DG604", "DG415")
        fix, *_ = await made.actions(uri, found.range, "quickfix")
        assert (
            fix.title == "DG604: let the logger format the text and report format errors (unsafe)"
        )
        assert fix.is_preferred is None
        # What is not safe is for nobody who fixes all there is.
        assert not any(a.kind != "quickfix" for a in await made.actions(uri))
        made.apply(fix.edit)
        await made.until(lambda: made.is_told(uri))
        assert "DG604" not in made.codes(uri)
        write(root / "pkg/log.py", text)
        command(root, "--fix", "--unsafe-fixes", "pkg/log.py")
        assert (root / "pkg/log.py").read_bytes() == made.texts[uri].encode()

    play(root, scenario)


@pytest.mark.parametrize("resolves", [True, False])
def test_all_safe_fixes_are_those_of_the_command(root: Path, resolves: bool) -> None:
    text = MODEL.replace(
        "return helper(x)", "for layer in self.layers[:2]:\n            x = layer(x)"
    )
    text = text.replace(
        "    def setup", "        x.add_(torch.zeros(3).to(x.device))  # é\n    def setup"
    )
    text += "\n    def __init__(self):\n        super().__init__()\n"
    text += "        self.layers = torch.nn.ModuleList()"
    write(root / "pkg/model.py", text)

    async def scenario(made: Editor) -> None:
        uri = made.open(root / "pkg/model.py")
        await made.found(uri, "DG603", "DG609", "DG504")
        (action,) = await made.actions(uri, None, "source.fixAll")
        assert action.kind == "source.fixAll.dispatchguard"
        if resolves:
            assert action.edit is None
            action = await made.client.code_action_resolve_async(action)
        made.apply(action.edit)
        await made.found(uri, "DG603")
        assert not any(a.kind == action.kind for a in await made.actions(uri))
        command(root, "--fix", "pkg/model.py")
        assert (root / "pkg/model.py").read_bytes() == made.texts[uri].encode()
        assert made.texts[uri] != text

    play(root, scenario, resolves=resolves)


# -- whatever is typed -------------------------------------------------------------------------------

LINES = (
    "        x = helper(x)\n",
    "        x = other(x)\n",
    '        s = "𝄞"; os.environ.get(s)\n',
    "        z = 2  # dispatchguard: ignore\n",
    "    def more(self, x):  # dispatchguard: hot\n        return other(x)\n",
    "        )\n",
    "\n",
)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_what_is_shown_of_a_saved_project_is_what_the_command_says(root: Path, seed: int) -> None:
    rng = random.Random(seed)

    async def scenario(made: Editor) -> None:
        uris = {rel: made.open(root / rel) for rel in ("pkg/model.py", "pkg/ops.py")}
        model = uris["pkg/model.py"]
        for _ in range(6):
            for _ in range(rng.randrange(1, 4)):
                lines = made.texts[model].splitlines(keepends=True)
                at = rng.randrange(8, len(lines) + 1)
                if rng.random() < 0.3 and at < len(lines):
                    del lines[at]
                else:
                    lines.insert(at, rng.choice(LINES))
                made.type(model, "".join(lines) if rng.random() < 0.8 else MODEL)
                await asyncio.sleep(rng.choice((0, 0.05, 0.4)))
            made.save(model)
            expected = as_places(checked(root))
            await made.until(
                lambda expected=expected: (
                    all(map(made.is_told, uris.values())) and places(made, uris) == expected
                )
            )

    play(root, scenario)


def test_without_pygls_one_line_says_what_to_do(root: Path) -> None:
    code = (
        "import sys; sys.modules['pygls'] = None; sys.argv = ['dispatchguard', 'server']; "
        "from pytest_dispatchguard.cli import command; command()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root
    )
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "pip install pytest-dispatchguard[server]" in line
