"""What the parameters of a function can be: annotations, defaults, recorded types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import libcst as cst

from pytest_dispatchguard.lint.dataflow.reader import Reader
from pytest_dispatchguard.lint.kinds.kinds import TENSOR, UNKNOWN, Kind
from pytest_dispatchguard.lint.kinds.recorded_types import with_recorded_types

_NOT_A_TENSOR = re.compile(
    r"(?:^|_)(?:shape|shapes|size|sizes)(?:_|$)|^(?:use|is|do|has|return)_|^output_(?:attentions|hidden_states)$|"
    r"^num_(?:experts?|heads|layers|labels|classes|groups|channels|features)$"
)


def bind_parameters(reader: Reader, params: cst.Parameters, function: str) -> None:
    """Bind the parameters of a function to what their annotations and defaults say."""
    plain = [*params.posonly_params, *params.params]
    is_module = reader.cls is not None and reader.cls.is_module
    is_backward = function == "backward" and bool(plain) and plain[0].name.value == "ctx"
    for i, p in enumerate([*plain, *params.kwonly_params]):
        name = p.name.value
        if name == reader.self_name and i == 0:
            continue
        kind = UNKNOWN
        if p.annotation is not None:
            kind = reader.annotation(p.annotation.annotation)
            if kind.what == "tensor" and _NOT_A_TENSOR.search(name):
                kind = kind.maybe()  # its name says that it is a shape, a count or a flag
            if kind.cls == "dict" and kind.element is not None:
                # A batch also holds settings and counts that stay on the host.
                kind = replace(kind, element=kind.element.maybe())
        default = p.default
        guessed = (
            p.annotation is None
            and is_module
            and function == "forward"
            and name not in reader.known_tensors
        )
        if default is not None:
            # Worked out where the function is defined, not in its calls.
            scene, reader.scene = reader.scene, replace(reader.scene, cold=True)
            given = reader.read(default)
            reader.scene = scene
            if given.what == "none":
                if guessed and not _NOT_A_TENSOR.search(name):
                    kind = TENSOR.maybe()
                kind = replace(kind, optional=True)
            elif kind.what == "unknown" and not kind.cls and given.what in ("scalar", "text"):
                kind = given
            elif kind.what == "tensor" and given.what in ("scalar", "text"):
                kind = kind.maybe()
        elif guessed:
            kind = TENSOR.maybe()
        elif is_backward and i > 0 and p.annotation is None:
            kind = TENSOR  # the gradients of what `forward` gave
        reader.bind_name(name, kind)
    if isinstance(params.star_arg, cst.Param):
        star = params.star_arg
        inner = reader.annotation(star.annotation.annotation) if star.annotation else UNKNOWN
        reader.bind_name(star.name.value, Kind("nested", element=inner))
    if params.star_kwarg is not None:
        reader.bind_name(params.star_kwarg.name.value, Kind("nested", element=UNKNOWN, cls="dict"))


def parameters_of(params: cst.Parameters) -> frozenset[str]:
    """The names of the parameters of a function, but for those with stars."""
    plain = (*params.posonly_params, *params.params, *params.kwonly_params)
    return frozenset(p.name.value for p in plain)


def apply_recorded_types(reader: Reader, seen: Mapping[str, Sequence[str]]) -> None:
    """Let the types that a recorded run passed to parameters decide what is still open."""
    for name, words in seen.items():
        kind = reader.names.kinds.get(name)
        if kind is None or name == reader.self_name:
            continue
        now = with_recorded_types(kind, words)
        reader.hold(name, now)
        if name in reader.known_tensors and not now.maybe_tensor:
            reader.known_tensors -= {name}
