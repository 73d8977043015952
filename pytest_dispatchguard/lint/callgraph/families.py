"""Which classes of the project inherit from known library classes: modules, metrics, optimizers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pytest_dispatchguard.lint.callgraph.class_hierarchy import method_owner, mro
from pytest_dispatchguard.lint.callgraph.project import Project, dotted_id, imports_torch
from pytest_dispatchguard.lint.facts import ClassFact
from pytest_dispatchguard.lint.knowledge.entry_points import LIBRARY_ROOTS, Known
from pytest_dispatchguard.lint.knowledge.library_names import canonical, family

_PLAIN = frozenset(
    "object abc ABC typing Generic Protocol enum Enum dict list tuple collections".split()
)
_NO_TORCH = frozenset(
    (
        "cupy ctypes dspy flax grpc haiku haystack jax jittor langchain langchain_core llama_index megengine "
        "mindspore mlx mxnet numpy oneflow onnx onnxruntime paddle pydantic sklearn tensorflow tensorrt "
        "rclpy rospy tinygrad torch triton"
    ).split()
)
"""Packages of which a class with a `forward` is none of torch's modules, or one that a table knows."""


def families(
    project: Project, class_id: str, extra: Mapping[str, Known]
) -> list[tuple[str, Known]]:
    """The known library classes among a class and its ancestors, nearest first."""
    found: dict[str, Known] = {}
    for base in mro(project, class_id):
        name = canonical(dotted_id(base))
        if name in extra:
            found.setdefault(name, extra[name])
        known = family(name) if (":" not in base or name in LIBRARY_ROOTS) else ""
        if known:
            found.setdefault(known, LIBRARY_ROOTS[known])
    return list(found.items())


def is_module(project: Project, class_id: str) -> bool:
    """Whether a class is a module, layer or metric: it inherits from a known library class, or its bases are
    unknown and it looks like a module."""
    return any(known.module for _, known in families(project, class_id, {})) or looks_like_module(
        project, class_id
    )


def looks_like_module(project: Project, class_id: str) -> bool:
    """Whether a class has a `forward` and an unknown library base, and either torch modules or parameters of
    its own, or a library base that it takes from elsewhere in a file that uses torch."""
    line = mro(project, class_id)
    outside = [base for base in line if ":" not in base and not _plain(base)]
    if not outside or not method_owner(project, class_id, "forward"):
        return False
    for base in line:
        class_ = project.classes.get(base)
        if class_ is not None and holds_modules(class_):
            return True
    file = project.files[project.modules[class_id.partition(":")[0]]]
    return imports_torch(file) and any(map(_may_be_a_module, outside))


def _may_be_a_module(base: str) -> bool:
    """Whether an imported class that no table knows may be a module of torch."""
    package, dot, _ = base.partition(".")
    return bool(dot) and package not in _NO_TORCH and not family(canonical(base))


def holds_modules(class_: ClassFact) -> bool:
    """Whether a class assigns torch modules or parameters to itself."""
    return any(
        value in ("param", "buffer") or value.startswith("call:torch.nn.")
        for values in class_.attrs.values()
        for value in values
    )


_FEW = 5
"""One attribute of so many, at least, is a tensor where a class is there for tensors."""
_TENSOR = re.compile(r"ann:(?!.*(?:Callable|ClassVar|[Tt]ype)\b).*\bTensor\b")


def holds_tensors(class_: ClassFact) -> bool:
    """Whether a good part of the attributes of a class are tensors, or hold some, by their annotations."""
    of_tensors = [values for values in class_.attrs.values() if any(map(_TENSOR.match, values))]
    return bool(of_tensors) and len(of_tensors) >= len(class_.attrs) / _FEW


def _plain(base: str) -> bool:
    """Whether a base outside the project says nothing about modules."""
    return base.partition(".")[0] in _PLAIN
