"""Records where the host waits for a real GPU, from torch's warnings about synchronizations."""

from __future__ import annotations

import ast
import opcode
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from pytest_dispatchguard.runtime.code.foreign import is_foreign, own_frames
from pytest_dispatchguard.runtime.code.source_text import asks_for_truth, place_in, text_at
from pytest_dispatchguard.runtime.syncs import torch_mode
from pytest_dispatchguard.runtime.syncs.syncs import Notes, Recorder, is_there

_SAID = "called a synchronizing CUDA operation"


class _Known(NamedTuple):
    operation: str
    why: str
    code: str


_READ = "a value is read back to the host"
_COUNT = "the host waits to learn how many there are"
_COPY = "the host waits until memory is copied"
_CALLS = {
    "item": _Known("item", _READ, "DG411"),
    "tolist": _Known("tolist", _READ, "DG413"),
    "bool": _Known("truth", _READ, "DG401"),
    "any": _Known("truth", _READ, "DG404"),
    "all": _Known("truth", _READ, "DG404"),
    "float": _Known("float", _READ, "DG412"),
    "int": _Known("int", _READ, "DG412"),
    "complex": _Known("complex", _READ, "DG412"),
    "str": _Known("str", _READ, "DG415"),
    "repr": _Known("repr", _READ, "DG415"),
    "format": _Known("format", _READ, "DG415"),
    "print": _Known("print", _READ, "DG415"),
    "equal": _Known("equal", _READ, "DG429"),
    "allclose": _Known("allclose", _READ, "DG429"),
    "nonzero": _Known("nonzero", _COUNT, "DG421"),
    "argwhere": _Known("argwhere", _COUNT, "DG421"),
    "where": _Known("where", _COUNT, "DG421"),
    "masked_select": _Known("masked_select", _COUNT, "DG422"),
    "unique": _Known("unique", _COUNT, "DG424"),
    "unique_consecutive": _Known("unique_consecutive", _COUNT, "DG424"),
    "bincount": _Known("bincount", _COUNT, "DG425"),
    "repeat_interleave": _Known("repeat_interleave", _COUNT, "DG426"),
    "range": _Known("index", _READ, "DG427"),
    "cpu": _Known("copy to the host", _COPY, "DG414"),
    "numpy": _Known("copy to the host", _COPY, "DG414"),
    "cuda": _Known("copy to the device", _COPY, "DG510"),
    "tensor": _Known("copy to the device", _COPY, "DG510"),
    "as_tensor": _Known("copy to the device", _COPY, "DG510"),
    "synchronize": _Known("synchronize", "the host waits for the device", "DG431"),
}
"""The reason and rule, which torch's warning does not name, by the function that was called."""
_TRUTH = _Known("truth", _READ, "DG401")
_MASK_READ = _Known("mask read", _COUNT, "DG422")
_MASK_WRITE = _Known("mask write", _COUNT, "DG423")
_TEXT = _Known("format", _READ, "DG415")
_WITHIN = {"bincount": 2, "repeat_interleave": 2, "histc": 2}
"""How often torch waits in one call of an operation that waits more than once: its user wrote one."""
_AS_ONE = {"_str": "_tensor_str.py", "_apply": "modules/module.py"}
"""Functions of torch, by their files, whose waits are one to the user: the text of a tensor, the move of a
module."""
_STORE = opcode.opmap["STORE_SUBSCR"]


def may_be_seen() -> bool:
    """Whether there can be a GPU: not under a ghost, nor with a CPU build of torch. The driver is not asked,
    as that would initialize the GPU."""
    torch = sys.modules.get("torch")
    return not is_there() and (torch is None or bool(torch.backends.cuda.is_built()))


@contextmanager
def recording() -> Iterator[Recorder]:
    """Records waits in this context. Code that filters warnings may hide some."""
    recorder = Recorder()
    notes = Notes([recorder])
    within: Counter[tuple[CodeType, int]] = Counter()
    module: Any = warnings
    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=_SAID)
        show = module._showwarnmsg

        def shown(message: warnings.WarningMessage) -> None:
            if not str(message.message).startswith(_SAID):
                show(message)
                return
            here = sys._getframe(1)
            if _is_told(here):
                return
            place = next(own_frames(here), None)
            known = _TRUTH if place is None else _called(place)
            if place is not None and known.operation in _WITHIN:
                at = place.f_code, place.f_lasti
                within[at] += 1
                if within[at] % _WITHIN[known.operation] != 1:
                    return
            notes.note(*known)

        module._showwarnmsg = shown
        try:
            with torch_mode.mode("warn"):
                yield recorder
        finally:
            module._showwarnmsg = show


def _is_told(frame: FrameType | None) -> bool:
    """Whether a wait of the same call of a function of `_AS_ONE` has been told. Such a call is marked on its
    frame, which nothing else keeps a note of for as long as it runs."""
    outermost = None
    while frame is not None:
        code = frame.f_code
        file = _AS_ONE.get(code.co_name)
        if (
            file is not None
            and Path(code.co_filename).as_posix().endswith(file)
            and is_foreign(code)
        ):
            outermost = frame
        frame = frame.f_back
    if outermost is None or outermost.f_trace not in (None, _told):
        return False
    before = outermost.f_trace is not None
    outermost.f_trace = _told
    return before


def _told(frame: FrameType, event: str, argument: object) -> None:
    """The mark of a frame."""


def _called(frame: FrameType) -> _Known:
    """The function that a frame calls, from its source."""
    if frame.f_lasti >= 0 and frame.f_code.co_code[frame.f_lasti] == _STORE:
        return _MASK_WRITE
    if frame.f_lasti >= 0 and asks_for_truth(frame.f_code, frame.f_lasti):
        return _TRUTH
    source = text_at(frame.f_code.co_filename, place_in(frame))
    try:
        node = ast.parse(source.strip()).body[0]
    except (SyntaxError, IndexError, ValueError):
        return _TRUTH  # the head of an `if`, `while` or `assert` over several lines
    value = getattr(node, "value", None)
    return _known(value) if isinstance(value, ast.expr) else _TRUTH


def _known(node: ast.expr) -> _Known:
    if isinstance(node, ast.Subscript):
        return _MASK_READ
    if isinstance(node, ast.JoinedStr | ast.FormattedValue):
        return _TEXT
    if not isinstance(node, ast.Call):
        return _TRUTH
    function = node.func
    name = getattr(function, "attr", None) or getattr(function, "id", "") or "call"
    if name in ("to", "copy_"):
        return _CALLS["cpu" if _to_host(node) else "cuda"]
    return _CALLS.get(name) or _Known(name, "the host waits for the device", "DG411")


def _to_host(node: ast.Call) -> bool:
    """Whether a copy goes to the host, by its arguments."""
    words = [ast.unparse(given) for given in (*node.args, *(k.value for k in node.keywords))]
    return any("cpu" in word or "host" in word for word in words)
