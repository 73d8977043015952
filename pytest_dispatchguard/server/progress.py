"""What an editor shows while a project is being read: the protocol's own progress of work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.server import LanguageServer

from pytest_dispatchguard.report import progress


@dataclass(slots=True)
class _Told:
    """What was told last, by the thread that works."""

    message: str = ""
    percentage: int | None = None

    def tell(self, what: str, done: int, total: int) -> None:
        """As the command's own progress is told."""
        counted = total > 1
        self.percentage = 100 * done // total if counted else None
        self.message = f"{what} {done}/{total}" if counted else what


@contextmanager
def working(
    server: LanguageServer, loop: asyncio.AbstractEventLoop, title: str
) -> Iterator[Callable[[str, int, int], None]]:
    """Gives a function to tell what is being done, how many are done, of how many. The editor shows it from
    when it has taken a second, if it can. For a thread beside that of the `loop`."""
    told, ended = _Told(), asyncio.Event()
    window = server.client_capabilities.window
    if window is not None and window.work_done_progress:
        asyncio.run_coroutine_threadsafe(_show(server, title, told, ended), loop)
    try:
        yield told.tell
    finally:
        try:
            loop.call_soon_threadsafe(ended.set)
        except RuntimeError:
            pass  # the editor has gone, and the loop with it


async def _show(server: LanguageServer, title: str, told: _Told, ended: asyncio.Event) -> None:
    if await _within(progress.PATIENCE, ended):
        return
    shown, token = server.work_done_progress, str(uuid4())
    try:
        await shown.create_async(token)
    except JsonRpcException:
        return  # an editor that refuses is told nothing
    last = told.message
    begin = types.WorkDoneProgressBegin(
        title, message=last or None, percentage=told.percentage or 0
    )
    shown.begin(token, begin)
    while not await _within(progress.EVERY, ended):
        if told.message != last:
            last = told.message
            now = types.WorkDoneProgressReport(message=last, percentage=told.percentage)
            shown.report(token, now)
    shown.end(token, types.WorkDoneProgressEnd())
    shown.tokens.pop(token, None)


async def _within(seconds: float, ended: asyncio.Event) -> bool:
    """Whether the work ends in so many seconds; waits as long at most."""
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except asyncio.TimeoutError:
        return False
    return True
