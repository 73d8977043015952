"""What `self.log(…)` of a LightningModule does with the value that it is given."""

from __future__ import annotations

import re

import libcst as cst

from pytest_dispatchguard import Place

from ..source_text import first_parameters
from ..syntax import is_word

_MODULES = frozenset({"lightning_module", "pl_module"})
"""What a module of Lightning is called elsewhere."""


def logged(node: cst.Call, place: Place) -> cst.BaseExpression | None:
    """The value that Lightning is given to log; None for other calls."""
    if place.last_name(node) != "log":
        return None
    owner = place.receiver(node)
    written = place.dotted(owner) if owner is not None else ""
    if written == place.self_name != "":
        ancestors = place.cls.ancestors if place.cls is not None else ()
        if not any(name.rpartition(".")[2] == "LightningModule" for name in ancestors):
            return None
        if place.defines("log"):
            return None
    elif written.rpartition(".")[2] not in _MODULES:
        return None
    return place.argument(node, 1, "value")


def may_log(source: str) -> bool:
    """Whether something may be given to Lightning to log, by the source text of a function."""
    owners = _MODULES | first_parameters(source)
    return any(found[1] in owners for found in _LOGS.finditer(source))


_LOGS = re.compile(r"(\w+)\s*\.\s*log\s*\(")


def is_shown(node: cst.Call, place: Place) -> bool:
    """Whether the progress bar shows what is logged in each step of the training."""
    if place.qualname.rpartition(".")[2] not in ("training_step", "on_train_batch_end"):
        return False
    shown, each = (place.argument(node, None, name) for name in ("prog_bar", "on_step"))
    return shown is not None and is_word(shown, "True") and (each is None or is_word(each, "True"))
