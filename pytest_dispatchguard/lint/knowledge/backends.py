"""Conditions on what code runs with: another framework, another accelerator, collectives of the host."""

from __future__ import annotations

import ast
import re

from pytest_dispatchguard.lint.knowledge.counters import dotted

_ASKS_FRAMEWORK = re.compile(r"_?(?:\w+_)?(?:backend|framework)", re.IGNORECASE)
_TORCH = frozenset({"torch", "pytorch", "pt"})
_OTHERS = frozenset(
    "tensorflow tf jax flax numpy np openvino mlx paddle mindspore mxnet cntk theano".split()
)
OTHER_DEVICE = re.compile(
    r"_?(?:is_|on_|use_|has_)?(?:torch_)?(?:xla|neuron|neuroncore|npu|hpu|mlu|musa|sdaa|tpu|mps)(?:_available|_device)?",
    re.IGNORECASE,
)
"""Asks for an accelerator that waits by other rules than CUDA does."""
_OTHER_DEVICES = frozenset("xla neuron npu hpu mlu musa sdaa tpu mps meta".split())


def framework(left: ast.expr, op: ast.cmpop, right: ast.expr) -> tuple[bool, bool]:
    """Of ``backend() == "jax"`` and the like: whether what runs when it is true, and when it is
    false, is for another framework than torch."""
    asked = dotted(left.func if isinstance(left, ast.Call) else left).rpartition(".")[2]
    if not _ASKS_FRAMEWORK.fullmatch(asked):
        return False, False
    elements = right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else [right]
    words = {e.value for e in elements if isinstance(e, ast.Constant)}
    if not words or len(words) < len(elements) or not words <= _OTHERS | _TORCH:
        return False, False
    foreign = (not words & _TORCH, words <= _TORCH)
    if isinstance(op, (ast.Eq, ast.In)):
        return foreign
    return foreign[::-1] if isinstance(op, (ast.NotEq, ast.NotIn)) else (False, False)


def collectives_of_the_host(left: ast.expr, op: ast.cmpop, right: ast.expr) -> tuple[bool, bool]:
    """Of ``get_backend(group) == "nccl"``: whether what runs when it is true, and when it is false, is for
    collectives whose tensors are on the CPU."""
    asked = dotted(left.func if isinstance(left, ast.Call) else left).rpartition(".")[2]
    named = right.value if isinstance(right, ast.Constant) else None
    if not _ASKS_FRAMEWORK.fullmatch(asked) or named not in ("nccl", "gloo"):
        return False, False
    if not isinstance(op, (ast.Eq, ast.NotEq)):
        return False, False
    return (True, False) if isinstance(op, ast.Eq) is (named == "gloo") else (False, True)


def on_other_device(left: ast.expr, right: ast.expr) -> bool:
    """Of ``x.device.type == "npu"``: whether it asks for an accelerator that is not CUDA's."""
    return (
        isinstance(right, ast.Constant)
        and right.value in _OTHER_DEVICES
        and dotted(left).endswith(("device.type", "device", "device_type"))
    )
