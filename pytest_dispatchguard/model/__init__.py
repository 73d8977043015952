"""The data that the parts of the project exchange, as frozen dataclasses.

Our own modules import from the submodule they need. Rule packs may use any name as
`pytest_dispatchguard.model.NAME`: it is looked up in the submodules on first use.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MODULES = (
    "errors",
    "findings",
    "reports",
    "operations",
    "reviews",
    "verdicts",
    "measurements",
    "layers",
    "compiled",
    "history",
    "prices",
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module in _MODULES:
        names = vars(import_module(f"{__name__}.{module}"))
        if name in names and not name.startswith("__"):
            globals()[name] = names[name]
            return names[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
