"""Keeps the methods of dataclasses and regular expressions from one process to the next, as Python keeps what
it compiles of modules.

`dataclasses` writes the methods of each class as text, and compiles that whenever the class is imported, as
`re` compiles each expression. The nodes of libcst and the classes of this package are three hundred, with two
hundred expressions: without this, a third of the time that a check of one changed file takes went there."""

from __future__ import annotations

import builtins
import dataclasses
import inspect  # `dataclasses` has it anyway
import marshal
import os
import re
import sys
import zlib
from contextlib import suppress

from pytest_dispatchguard.startup.user_folder import own_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any

_OURS = ("libcst", "pytest_dispatchguard", "dispatchguard_rules")
"""The packages of which these are kept: what other people import is theirs."""
_MOST = 6000
"""Texts: with more, those of earlier releases are among them."""


_keep: Callable[[], None] | None = None


def keep() -> None:
    """Keeps, if it has begun, what had to be compiled."""
    if _keep is not None:
        _keep()


def begin() -> Callable[[], None]:
    """From here on, has `dataclasses` and `re` compile nothing that is kept; gives what keeps, later, what
    had to be compiled all the same. Does nothing where there is no folder for it, or where it has begun
    before."""
    path = None if "exec" in vars(dataclasses) else _path()
    if path is None:
        return lambda: None
    known = _read(path)
    used: dict[str, bytes] = {}

    def kept(text: str, make: Callable[[], Any]) -> Any:
        if text in known:
            used[text] = known[text]
            return marshal.loads(known[text])
        made = make()
        used[text] = marshal.dumps(made)
        return made

    def run(source: Any, *names: Any, **more: Any) -> None:
        if isinstance(source, str):
            text = source
            ours = bool(names) and type(names[0]) is dict and _is_ours(names[0])
            source = kept(text, lambda: _compiled(text)) if ours else _compiled(text)
        builtins.exec(source, *names, **more)

    def keep_used() -> None:
        if not used.keys() <= known.keys():
            merged = {**known, **used}
            _write(path, merged if len(merged) <= _MOST else used)

    # `dataclasses` finds it before the builtin function of that name.
    vars(dataclasses)["exec"] = run
    _keep_patterns(kept)
    global _keep
    _keep = keep_used
    return keep_used


def _keep_patterns(kept: Callable[[str, Callable[[], Any]], Any]) -> None:
    """Has `re` ask for what is kept of expressions, those of functions aside: names of a project may be in
    them. What modules of Python compile when they are imported counts, too: three of `tomllib` take longer
    than to read a configuration."""
    compiler: Any = (
        vars(re).get("_compiler") or vars(re)["sre_compile"]
    )  # the one before Python 3.11
    parser: Any = vars(re).get("_parser") or vars(re)["sre_parse"]
    plain = compiler.compile

    def compile_pattern(pattern: Any, flags: int = 0) -> Any:
        asking = sys._getframe(3)  # beyond two of `re`
        in_function = asking.f_code.co_flags & inspect.CO_OPTIMIZED
        known = _is_ours(asking.f_globals) or _is_of_python(asking.f_globals)
        if type(pattern) is not str or in_function or not known:
            return plain(pattern, flags)

        def make() -> tuple[int, list[int], int, dict[str, int]]:
            tree = parser.parse(pattern, flags)
            state = tree.state
            code = [
                int(word) for word in compiler._code(tree, flags)
            ]  # some are of a class of its own
            return flags | state.flags, code, state.groups - 1, dict(state.groupdict)

        all_flags, code, groups, names = kept(f"{flags}:{pattern}", make)
        numbers = {number: name for name, number in names.items()}
        of_groups = tuple(map(numbers.get, range(groups + 1)))
        return compiler._sre.compile(pattern, all_flags, code, groups, names, of_groups)

    compiler.compile = compile_pattern


def _is_ours(names: dict[str, Any]) -> bool:
    """Whether these are the names of one of our modules."""
    return _package(names) in _OURS


def _is_of_python(names: dict[str, Any]) -> bool:
    """Whether these are the names of a module that comes with Python, such as `tomllib`."""
    return _package(names) in sys.stdlib_module_names


def _package(names: dict[str, Any]) -> str:
    """The package of the module whose names these are."""
    return str(names.get("__name__")).partition(".")[0]


def _compiled(text: str) -> CodeType:
    """As `dataclasses` would: what this module has from the future is not for others."""
    return compile(text, "<string>", "exec", dont_inherit=True)


def _path() -> str | None:
    """Where they are kept: in this user's folder for what may be lost."""
    home = os.environ.get("HOME")
    base = os.environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    if not hasattr(os, "getuid") or not base.startswith("/"):
        return None
    with suppress(OSError):
        os.makedirs(base, 0o700, exist_ok=True)  # noqa: PTH103 - pathlib costs what is to be saved
    folder = own_folder(base.rstrip("/"), "dispatchguard")
    # Another Python reads other code, and leaves other things out of it.
    python = f"{sys.version} {sys.flags.optimize}".encode()
    tag = sys.implementation.cache_tag
    return None if folder is None else f"{folder}/methods-{tag}-{zlib.crc32(python):08x}"


def _read(path: str) -> dict[str, bytes]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the same
            data = file.read()
        if zlib.crc32(data[4:]).to_bytes(4, "big") != data[:4]:
            return {}
        known = marshal.loads(data[4:])
    except (OSError, EOFError, ValueError, TypeError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(path: str, known: dict[str, bytes]) -> None:
    data = marshal.dumps(known)
    temporary = f"{path}.{os.getpid()}"
    with suppress(OSError):
        try:
            with open(temporary, "wb") as file:  # noqa: PTH123 - the same
                file.write(zlib.crc32(data).to_bytes(4, "big") + data)
            os.replace(temporary, path)  # noqa: PTH105 - the same
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108 - the same
            raise
