"""dispatchguard: keeps the host-side overhead of code built on PyTorch from growing.

The public names are imported on first use, so that a pytest run that does not need them pays nothing.

PYTEST_DONT_REWRITE: nothing here asserts, and it may be imported before pytest is.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what checkers of types know it by, without `typing`

__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(
        ("Certainty", "Edit", "Finding", "Fix", "Hot", "Price", "Span", "weaker"), "model.findings"
    ),
    **dict.fromkeys(("UserError",), "model.errors"),
    **dict.fromkeys(("hookimpl", "hookspec"), "hookspecs"),
    **dict.fromkeys(("Recorder", "Sync", "allow_sync"), "runtime.syncs.syncs"),
    **dict.fromkeys(("ghost",), "runtime.ghost.ghost"),
    **dict.fromkeys(("Kind",), "lint.kinds.kinds"),
    **dict.fromkeys(("Place",), "lint.judge.place"),
    **dict.fromkeys(("Scene",), "lint.dataflow.scene"),
    **dict.fromkeys(
        (
            "Assignment",
            "Attribute",
            "Call",
            "Class",
            "Comparison",
            "Comprehension",
            "ComparingCall",
            "ConstantCopy",
            "Decorated",
            "Def",
            "Elements",
            "FString",
            "Function",
            "Getitem",
            "HelperCall",
            "Import",
            "Iterated",
            "Lambda",
            "Look",
            "Loop",
            "MadeCall",
            "MathCall",
            "NumberCall",
            "Rounds",
            "Rule",
            "SelfWrite",
            "Setitem",
            "ShapeProduct",
            "SizedCall",
            "Tables",
            "Truth",
            "With",
        ),
        "lint.judge.rule",
    ),
}
_MODULES = {"nodes": "lint.syntax.nodes"}

__all__ = [  # noqa: RUF022 - by theme
    "__version__",
    "Certainty", "Edit", "Finding", "Fix", "Hot", "Price", "Span", "UserError", "weaker",
    "hookimpl", "hookspec",
    "Recorder", "Sync", "allow_sync", "ghost",
    "Kind", "Place", "Scene",
    "Assignment", "Attribute", "Call", "Class", "ComparingCall", "Comparison", "Comprehension",
    "ConstantCopy", "Decorated", "Def", "Elements", "FString", "Function", "Getitem", "HelperCall",
    "Import", "Iterated", "Lambda", "Look", "Loop", "MadeCall", "MathCall", "NumberCall", "Rounds",
    "Rule", "SelfWrite", "Setitem", "ShapeProduct", "SizedCall", "Tables", "Truth", "With",
    "nodes",
]  # fmt: skip

if TYPE_CHECKING:
    from typing import Any

    from pytest_dispatchguard.hookspecs import hookimpl, hookspec
    from pytest_dispatchguard.lint.dataflow.scene import Scene
    from pytest_dispatchguard.lint.judge.place import Place
    from pytest_dispatchguard.lint.judge.rule import (
        Assignment,
        Attribute,
        Call,
        Class,
        ComparingCall,
        Comparison,
        Comprehension,
        ConstantCopy,
        Decorated,
        Def,
        Elements,
        FString,
        Function,
        Getitem,
        HelperCall,
        Import,
        Iterated,
        Lambda,
        Look,
        Loop,
        MadeCall,
        MathCall,
        NumberCall,
        Rounds,
        Rule,
        SelfWrite,
        Setitem,
        ShapeProduct,
        SizedCall,
        Tables,
        Truth,
        With,
    )
    from pytest_dispatchguard.lint.kinds.kinds import Kind
    from pytest_dispatchguard.lint.syntax import nodes
    from pytest_dispatchguard.model.errors import UserError
    from pytest_dispatchguard.model.findings import (
        Certainty,
        Edit,
        Finding,
        Fix,
        Hot,
        Price,
        Span,
        weaker,
    )
    from pytest_dispatchguard.runtime.ghost.ghost import ghost
    from pytest_dispatchguard.runtime.syncs.syncs import Recorder, Sync, allow_sync


def __getattr__(name: str) -> Any:
    from importlib import import_module

    value: Any
    if name in _MODULES:
        value = import_module(f"{__name__}.{_MODULES[name]}")
    elif name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
