"""`dispatchguard server`: the linter for editors, in the Language Server Protocol on standard input and
output.

Protocol in, protocol out: what is found comes from `lint.resident`, how it is said from `report.lsp`.
The loop only talks; one thread holds the projects and lints, another finds out what is hot where that has
changed.
"""

from __future__ import annotations

import asyncio
import enum
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path, uri_scheme

from pytest_dispatchguard import __version__
from pytest_dispatchguard.config.project_root import LIBRARY_FOLDERS, find_root
from pytest_dispatchguard.lint.processes.workers import default_jobs
from pytest_dispatchguard.lint.resident import Resident, Solved, Told, Unsolved, resident_around
from pytest_dispatchguard.lint.results.fixes import fix
from pytest_dispatchguard.lint.results.ignore_comments import NOT_SUPPRESSIBLE, ignore_comment
from pytest_dispatchguard.model.errors import UserError
from pytest_dispatchguard.model.findings import Edit, Elsewhere, Finding, RuleInfo
from pytest_dispatchguard.report.formats import lsp
from pytest_dispatchguard.report.wording import NAME, remedy
from pytest_dispatchguard.server.progress import working

PAUSE = 0.1
"""Seconds without a keystroke before a text is checked."""
_CALM = 0.4
"""The same before hotness is solved anew."""
_TURN = 0.001
"""Seconds that a thread works before another may: what is hot is found out while somebody types."""
_PATIENCE = 2.0
"""Seconds that it waits for a text to be checked, at most."""
FIX_ALL = "source.fixAll.dispatchguard"
_SUFFIXES = (".py", ".pyi", ".pyw")
_WATCHED = (
    "**/*.py",
    "**/pyproject.toml",
    "**/.dispatchguard/profile.json",
    "**/.dispatchguard/prices.json",
)

_T = TypeVar("_T")


def serve() -> None:
    """Answers an editor until it ends the conversation."""
    logging.getLogger("pygls").setLevel(logging.CRITICAL)
    reader, writer = _own_streams()
    # What the client sends of a change counts lines as pygls does, which is not how Python counts them:
    # whole texts leave nothing to count.
    server = LanguageServer(NAME, __version__, types.TextDocumentSyncKind.Full)
    _register(server, Session(server))
    # Facts and trees are many and without cycles: a collector that looks through all of them every few
    # thousand objects would take as long as all else.
    gc.set_threshold(50_000, 20, 100)
    gc.enable()
    sys.setswitchinterval(_TURN)
    server.start_io(reader, writer)


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output for the protocol alone: whatever else reads or writes them, a rule that
    prints or a process that is started, gets nothing and the log."""
    reader, writer = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reader, writer


@dataclass(frozen=True, slots=True)
class _Open:
    """A text that is open in the editor, as it was when somebody asked."""

    uri: str
    path: Path
    text: str
    version: int | None


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the editor shows of a text."""

    diagnostics: tuple[types.Diagnostic, ...]
    root: Path
    """Of its project."""
    state: str
    """Of the project, as `Told` has it."""


class Session:
    """A conversation with one editor."""

    def __init__(self, server: LanguageServer) -> None:
        self._server = server
        self._lint = ThreadPoolExecutor(1)
        self._heat = ThreadPoolExecutor(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        """That talks, once it does."""
        self._idle = threading.Event()
        """Whether the linting thread has nothing to do."""
        self._projects: dict[Path, Resident | None] = {}
        """By root; None where the configuration never was any good. The linting thread's own."""
        self._roots: dict[Path, Path] = {}
        """Of texts that were asked for. The same thread's, as the next."""
        self._stamps: dict[Path, object] = {}
        """What tells whether a configuration has changed."""
        self._rules: dict[str, RuleInfo] = {}
        self._uris: set[str] = set()
        """Of the texts that are open and are for us."""
        self._due: dict[str, asyncio.TimerHandle] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._solving: dict[Path, asyncio.Task[None]] = {}
        self._shown: dict[str, _Shown] = {}
        self._typed = 0.0
        """When the last keystroke came."""
        self._said: set[str] = set()
        self._unsaid: list[str] = []
        """What the linting thread has to say."""
        self._looked = False
        """Whether the disk is as it was looked at."""

    # -- what the editor tells ---------------------------------------------------------------------

    def opened(self, uri: str, language: str | None) -> None:
        """A text was opened."""
        path = self._path(uri)
        if path is None or not (language == "python" or path.suffix in _SUFFIXES):
            return
        self._uris.add(uri)
        self._looked = False
        self._check_soon(uri, 0)

    def changed(self, uri: str) -> None:
        """A text was edited."""
        if uri in self._uris:
            self._typed = time.monotonic()
            self._check_soon(uri, PAUSE)

    def touched(self) -> None:
        """Something on disk is not what it was."""
        self._looked = False
        for uri in self._uris:
            self._check_soon(uri, 0)

    def closed(self, uri: str) -> None:
        """A text was closed: what is on disk counts again."""
        if uri not in self._uris:
            return
        self._uris.remove(uri)
        self._shown.pop(uri, None)
        if (timer := self._due.pop(uri, None)) is not None:
            timer.cancel()
        self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))
        self.touched()

    # -- checking ----------------------------------------------------------------------------------

    def _check_soon(self, uri: str, seconds: float) -> None:
        if (timer := self._due.pop(uri, None)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._due[uri] = loop.call_later(seconds, self._begin, uri)

    def _begin(self, uri: str) -> None:
        self._due.pop(uri, None)
        task = asyncio.ensure_future(self._check_now(uri))
        self._work.add(task)  # nobody else holds it
        task.add_done_callback(self._work.discard)

    async def _check_now(self, uri: str) -> None:
        """Checks a text and shows what was found, unless it has been edited meanwhile."""
        texts = self._texts()
        if uri not in texts:
            return
        version = texts[uri].version
        found = await self._in_thread(self._lint, partial(self._checked, uri, texts))
        if found is None:
            return
        resident, told = found
        for problem in told.problems:
            self._say(problem)
        root = resident.config.root
        if uri in self._uris and self._version(uri) == version:
            self._show(uri, version, resident, told)
        for other, shown in self._shown.items():
            if shown.root == root and shown.state != told.state and other not in self._due:
                self._check_soon(other, 0)
        solving = self._solving.get(root)
        if not told.settled and (solving is None or solving.done()):
            self._solving[root] = asyncio.ensure_future(self._solve(root))

    async def _solve(self, root: Path) -> None:
        """Finds out what is hot in a project, once nobody types, and shows what follows for all texts."""
        while True:
            while (rest := self._typed + _CALM - time.monotonic()) > 0:
                await asyncio.sleep(rest)
            texts = self._texts()
            found = await self._in_thread(self._lint, partial(self._unsolved, root, texts))
            if found is None:
                return
            resident, unsolved = found
            solved = await self._in_thread(
                self._heat, partial(unsolved.solved, lambda: self._idle.wait(_PATIENCE))
            )
            if solved is None:
                return
            await self._in_thread(self._lint, partial(self._accept, root, resident, solved))
            for uri in texts:
                if uri not in self._due:
                    await self._check_now(uri)

    async def _in_thread(self, thread: ThreadPoolExecutor, work: Callable[[], _T]) -> _T | None:
        """What comes of work; None where it failed, which is said."""
        if thread is self._lint:
            work = partial(self._first, work)
        self._loop = asyncio.get_running_loop()
        try:
            return await self._loop.run_in_executor(thread, work)
        except UserError as error:
            self._say(str(error))
        except Exception as error:  # noqa: BLE001 - one text that cannot be linted must not end the rest
            self._say(f"internal error: {type(error).__name__}: {error} (please report it)")
        finally:
            while self._unsaid:
                self._say(self._unsaid.pop(0))
        return None

    def _say(self, line: str) -> None:
        """Says something to whoever sits there, once."""
        if line not in self._said:
            self._said.add(line)
            shown = types.ShowMessageParams(types.MessageType.Error, f"{NAME}: {line}")
            self._server.window_show_message(shown)

    def _texts(self) -> dict[str, _Open]:
        """All texts that are open, as they are now."""
        found = {}
        for uri in sorted(self._uris):
            path = self._path(uri)
            if path is not None:
                document = self._server.workspace.get_text_document(uri)
                found[uri] = _Open(uri, path, document.source, document.version)
        return found

    def _version(self, uri: str) -> int | None:
        return self._server.workspace.get_text_document(uri).version

    def _path(self, uri: str) -> Path | None:
        """Where a text lies, or would lie if it were saved; None for what is not ours to read."""
        scheme = uri_scheme(uri)
        if scheme == "untitled":
            folder = self._server.workspace.root_path
            name = uri.partition(":")[2].rpartition("/")[2] or "untitled"
            return Path(folder or Path.cwd(), name if name.endswith(_SUFFIXES) else f"{name}.py")
        place = to_fs_path(uri) if scheme == "file" else None
        path = None if place is None else Path(place)
        # Installed packages are not what their reader works on.
        return None if path is None or set(path.parts) & set(LIBRARY_FOLDERS) else path

    # -- in the linting thread ---------------------------------------------------------------------

    def _first(self, work: Callable[[], _T]) -> _T:
        """Does work, while the thread that finds out what is hot waits."""
        self._idle.clear()
        try:
            return work()
        finally:
            self._idle.set()

    def _checked(self, uri: str, texts: Mapping[str, _Open]) -> tuple[Resident, Told] | None:
        if not self._looked:
            self._looked = True
            self._look()
        resident = self._project(texts[uri].path)
        if resident is None:
            return None
        rel = resident.rel(texts[uri].path)
        return resident, resident.check(rel, self._texts_of(resident, texts), wait=False)

    def _unsolved(self, root: Path, texts: Mapping[str, _Open]) -> tuple[Resident, Unsolved] | None:
        resident = self._projects.get(root)
        if resident is None:
            return None
        unsolved = resident.unsolved(self._texts_of(resident, texts))
        return None if unsolved is None else (resident, unsolved)

    def _accept(self, root: Path, resident: Resident, solved: Solved) -> None:
        if self._projects.get(root) is resident:  # else it was read anew meanwhile
            resident.accept(solved)

    def _texts_of(self, resident: Resident, texts: Mapping[str, _Open]) -> dict[str, str]:
        root = resident.config.root
        return {resident.rel(t.path): t.text for t in texts.values() if self._root(t.path) == root}

    def _root(self, path: Path) -> Path:
        if path not in self._roots:
            self._roots[path] = find_root([path])
        return self._roots[path]

    def _project(self, path: Path) -> Resident | None:
        root = self._root(path)
        if root not in self._projects:
            self._load(root, path)
        return self._projects[root]

    def _load(self, root: Path, path: Path) -> bool:
        """Reads a project, and whether that could be done. The one that is there stays where its
        configuration is no good any more."""
        self._stamps[root] = _stamp(root)
        try:
            resident = resident_around(path, default_jobs())
        except UserError as error:
            self._projects.setdefault(root, None)
            self._unsaid.append(str(error))
            return False
        if (old := self._projects.get(root)) is not None:
            old.close()
        self._projects[root] = resident
        self._said.clear()
        self._rules = {info.code: info for info in resident.catalog.infos}
        self._refresh(resident)
        gc.freeze()  # it stays: to look through all of it again and again would hold up keystrokes
        return True

    def _look(self) -> None:
        """Looks at the disk again, and at configurations."""
        kept = set()
        for root, resident in list(self._projects.items()):
            if _stamp(root) != self._stamps[root]:
                if not self._load(root, root / "pyproject.toml"):
                    kept.add(root)
            elif resident is not None:
                self._refresh(resident)
        self._roots = {path: root for path, root in self._roots.items() if root in kept}

    def _refresh(self, resident: Resident) -> None:
        assert self._loop is not None
        with working(self._server, self._loop, f"{NAME}: {resident.config.root.name}") as tell:
            resident.refresh(tell)
        for complaint in resident.complaints:
            self._unsaid.append(complaint)

    # -- showing -----------------------------------------------------------------------------------

    def _show(self, uri: str, version: int | None, resident: Resident, told: Told) -> None:
        on = lsp.sheet(told.text, self._encoding)
        elsewhere = partial(self._location, resident)
        found = tuple(lsp.diagnostic(finding, on, elsewhere) for finding in told.findings)
        self._shown[uri] = _Shown(found, resident.config.root, told.state)
        self._server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri, found, version)
        )

    def _location(self, resident: Resident, place: Elsewhere) -> types.Location | None:
        path = resident.config.root / place.path
        uri = from_fs_path(str(path))
        text = resident.text(place.path)
        if uri is None or text is None:
            return None
        return types.Location(uri, lsp.sheet(text, self._encoding).range(place.span))

    @property
    def _encoding(self) -> types.PositionEncodingKind | str:
        return self._server.server_capabilities.position_encoding or "utf-16"

    # -- what the editor asks ----------------------------------------------------------------------

    def hover(self, uri: str, at: types.Position) -> types.Hover | None:
        """What the rules say that a place is flagged by."""
        shown = self._shown.get(uri)
        here = [d for d in shown.diagnostics if _holds(d.range, at)] if shown else []
        codes = dict.fromkeys(str(diagnostic.code) for diagnostic in here)
        pages = [lsp.hover(self._rules[code]) for code in codes if code in self._rules]
        if not pages:
            return None
        text = "\n\n---\n\n".join(pages)
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text), here[0].range)

    async def actions(self, params: types.CodeActionParams) -> list[types.CodeAction]:
        """What can be done about what is flagged in a place."""
        uri, only = params.text_document.uri, params.context.only
        texts = self._texts()
        if uri not in texts:
            return []
        found = await self._in_thread(self._lint, partial(self._checked, uri, texts))
        if found is None:
            return []
        resident, told = found
        on = lsp.sheet(told.text, self._encoding)
        version = texts[uri].version
        actions: list[types.CodeAction] = []
        if _wanted(types.CodeActionKind.QuickFix, only):
            elsewhere = partial(self._location, resident)
            for finding in told.findings:
                diagnostic = lsp.diagnostic(finding, on, elsewhere)
                if _touch(diagnostic.range, params.range):
                    actions += await self._quick_fixes(uri, version, told, finding, diagnostic)
        safe = any(f.fix is not None and f.fix.safety == "safe" for f in told.findings)
        if safe and _wanted(FIX_ALL, only):
            action = types.CodeAction(
                "Fix all that is safe to fix (dispatchguard)", FIX_ALL, data={"uri": uri}
            )
            actions.append(action if self._resolves else await self.resolved(action))
        return actions

    async def _quick_fixes(
        self,
        uri: str,
        version: int | None,
        told: Told,
        finding: Finding,
        diagnostic: types.Diagnostic,
    ) -> list[types.CodeAction]:
        def edit(edits: tuple[Edit, ...]) -> types.WorkspaceEdit:
            return self._workspace_edit(uri, version, told.text, edits)

        def made() -> Iterator[types.CodeAction]:
            kind = types.CodeActionKind.QuickFix
            said = finding.fix
            if said is not None and fix(told.text, [finding], (said.safety,)).made:
                safe = said.safety == "safe"
                yield types.CodeAction(
                    f"{finding.code}: {remedy(said)}",
                    kind,
                    [diagnostic],
                    is_preferred=safe or None,
                    edit=edit(said.edits),
                )
            if finding.code in NOT_SUPPRESSIBLE:
                return
            comment = ignore_comment(told.text, finding)
            if comment is not None:
                title = f"{finding.code}: ignore here"
                yield types.CodeAction(title, kind, [diagnostic], edit=edit((comment,)))

        return await self._in_thread(self._lint, lambda: list(made())) or []

    async def resolved(self, action: types.CodeAction) -> types.CodeAction:
        """An action with its edit: all safe fixes of a file, in as many passes as it takes."""
        uri = action.data.get("uri", "") if isinstance(action.data, dict) else ""
        texts = self._texts()
        if uri not in texts:
            return action

        def fixed() -> str | None:
            resident = self._project(texts[uri].path)
            if resident is None:
                return None
            return resident.fixed(resident.rel(texts[uri].path), self._texts_of(resident, texts))

        text = texts[uri].text
        after = await self._in_thread(self._lint, fixed)
        edits = () if after is None else tuple(lsp.changes(text, after))
        action.edit = self._workspace_edit(uri, texts[uri].version, text, edits)
        return action

    def _workspace_edit(
        self, uri: str, version: int | None, text: str, edits: tuple[Edit, ...]
    ) -> types.WorkspaceEdit:
        made = lsp.text_edits(edits, lsp.sheet(text, self._encoding))
        workspace = self._server.client_capabilities.workspace
        able = workspace.workspace_edit if workspace is not None else None
        if able is None or not able.document_changes:
            return types.WorkspaceEdit(changes={uri: made})
        which = types.OptionalVersionedTextDocumentIdentifier(uri, version)
        return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(which, made)])

    @property
    def _resolves(self) -> bool:
        """Whether the editor asks for the edit of an action once it is chosen."""
        document = self._server.client_capabilities.text_document
        able = document.code_action if document is not None else None
        support = able.resolve_support if able is not None else None
        return support is not None and "edit" in support.properties

    async def watch(self) -> None:
        """Asks the editor to tell of what changes on disk, if it can."""
        workspace = self._server.client_capabilities.workspace
        able = workspace.did_change_watched_files if workspace is not None else None
        if able is None or not able.dynamic_registration:
            return
        watchers = [types.FileSystemWatcher(glob) for glob in _WATCHED]
        options = types.DidChangeWatchedFilesRegistrationOptions(watchers)
        asked = types.Registration("watched", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
        await self._server.client_register_capability_async(types.RegistrationParams([asked]))


def _stamp(root: Path) -> object:
    """Changes when the configuration in a folder does."""
    try:
        status = (root / "pyproject.toml").stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _wanted(kind: str, only: Any) -> bool:
    """Whether an editor that wants `only` some kinds of actions wants one."""
    words = [o.value if isinstance(o, enum.Enum) else o for o in only or ("",)]
    return any(kind == word or not word or kind.startswith(f"{word}.") for word in words)


def _holds(place: types.Range, at: types.Position) -> bool:
    return _key(place.start) <= _key(at) <= _key(place.end)


def _touch(one: types.Range, other: types.Range) -> bool:
    return _key(one.start) <= _key(other.end) and _key(other.start) <= _key(one.end)


def _key(at: types.Position) -> tuple[int, int]:
    return at.line, at.character


def _register(server: LanguageServer, session: Session) -> None:
    """What of the protocol is answered."""

    @server.feature(types.INITIALIZED)
    async def initialized(_: types.InitializedParams) -> None:
        await session.watch()

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: types.DidOpenTextDocumentParams) -> None:
        session.opened(params.text_document.uri, params.text_document.language_id)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: types.DidChangeTextDocumentParams) -> None:
        session.changed(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(_: types.DidSaveTextDocumentParams) -> None:
        session.touched()

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        session.closed(params.text_document.uri)

    @server.feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    def watched(_: types.DidChangeWatchedFilesParams) -> None:
        session.touched()

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        return session.hover(params.text_document.uri, params.position)

    options = types.CodeActionOptions(
        [types.CodeActionKind.QuickFix, FIX_ALL], resolve_provider=True
    )

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    async def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        return await session.actions(params)

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolve(action: types.CodeAction) -> types.CodeAction:
        return await session.resolved(action)
