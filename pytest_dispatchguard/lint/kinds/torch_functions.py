"""What functions of torch return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_dispatchguard.lint.kinds import torch_ops
from pytest_dispatchguard.lint.kinds.classes import MODULE_LISTS, is_module_class, is_tensor_class
from pytest_dispatchguard.lint.kinds.kinds import OTHER, SCALAR, TENSOR, TENSORS, UNKNOWN, Kind
from pytest_dispatchguard.lint.kinds.methods import LIMITS, method_kind
from pytest_dispatchguard.lint.kinds.operations import INT_RESULT, dtype_of, operation_kind
from pytest_dispatchguard.lint.kinds.placement import CPU, moved_to, placed, tensors_in

FACTORIES = frozenset(
    "zeros ones empty full arange linspace logspace eye rand randn randint randperm tensor as_tensor asarray "
    "scalar_tensor tril_indices triu_indices hann_window hamming_window blackman_window bartlett_window "
    "kaiser_window empty_strided normal complex from_numpy frombuffer".split()
)
"""torch functions that make a tensor from Python values: on the CPU unless told a device."""
LIKE = frozenset(
    "zeros_like ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_full "
    "new_empty new_tensor".split()
)
"""Functions and methods that make a tensor like another: where that one is, unless told a device."""

_ANSWERS = frozenset({"is_tensor", "is_grad_enabled", "is_autocast_enabled"})


def torch_kind(
    name: str, args: Sequence[Kind], keywords: Mapping[str, Kind], texts: Mapping[str, str]
) -> Kind | None:
    """What `name(...)` returns, for a dotted name of torch; None where nothing is known."""
    if is_tensor_class(name):
        return Kind(
            "tensor",
            host=name.endswith("Tensor") and "cuda" not in name and "Parameter" not in name,
        )
    if is_module_class(name):
        return Kind("modules" if name in MODULE_LISTS else "module", cls=name)
    head, _, last = name.rpartition(".")
    if head == "torch.Tensor" and args:
        return method_kind(args[0], last, args[1:], keywords, texts)
    if head in ("torch.nn.functional", "torch.nn.init"):
        if last in torch_ops.NN_FUNCTIONS or last in torch_ops.FUNCTIONS:
            if last in ("max_pool1d", "max_pool2d", "max_pool3d") and "return_indices" in keywords:
                return TENSORS
            return operation_kind(last, args, keywords)
        if last.endswith("_with_indices") or last == "multi_head_attention_forward":
            return TENSORS
        return None
    if head in ("torch.linalg", "torch.fft", "torch.special"):
        if last in (
            "svd",
            "qr",
            "eig",
            "eigh",
            "lu",
            "slogdet",
            "lstsq",
            "lu_factor",
            "inv_ex",
            "cholesky_ex",
        ):
            return TENSORS
        return operation_kind(last, args, keywords)
    if head == "torch":
        return _function_kind(last, args, keywords, texts)
    if head == "torch.distributed":
        return SCALAR if last.startswith(("get_", "is_")) else None
    if head in ("torch.cuda", "torch.backends", "torch.backends.cuda", "torch.accelerator"):
        return OTHER
    if name in ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.get_total_norm"):
        return TENSOR
    return None


def _function_kind(
    last: str, args: Sequence[Kind], keywords: Mapping[str, Kind], texts: Mapping[str, str]
) -> Kind | None:
    if last in FACTORIES:
        device = texts.get("device", "")
        on_cpu = device in ("", "None") or CPU.search(device) is not None
        on_cpu = on_cpu or keywords.get("device", UNKNOWN).host
        if "out" in keywords:
            return replace(TENSOR, host=keywords["out"].host)  # it lies where that lies
        given = args[0] if args else UNKNOWN
        if last in ("complex", "normal") and tensors_in(args):
            return placed(TENSOR, args)
        if last in ("tensor", "as_tensor", "asarray") and given.what == "tensor":
            # What a tensor is made of stays where it is.
            on_cpu = on_cpu and (given.host or bool(device))
        elif last in ("as_tensor", "asarray") and given.what == "unknown":
            # What is unknown may be a tensor.
            on_cpu = False
        dtype = texts.get("dtype", "")
        return Kind(
            "tensor",
            host=on_cpu,
            built=last in ("tensor", "as_tensor", "asarray"),
            dtype=dtype_of(dtype)
            or ("bool" if last in ("tensor", "as_tensor") and _all_bool(given) else "")
            or ("int" if last in INT_RESULT or (last == "arange" and _all_int(args)) else ""),
            ndim=_dimensions(last, args),
        )
    if last == "where":
        return (
            Kind("nested", element=placed(Kind("tensor", dtype="int"), args))
            if len(args) == 1
            else placed(TENSOR, args)
        )
    if last in torch_ops.FUNCTIONS_OVERLOADED:
        two = len(args) > 1 and args[1].what == "tensor"
        if two:
            return operation_kind(last, args, keywords)
        split = len(args) > 1 or any(
            k in keywords for k in ("dim", "axis", "return_inverse", "return_counts")
        )
        if split:
            return Kind("nested", element=placed(TENSOR, args))
        return operation_kind(last, args, keywords)
    if last in torch_ops.FUNCTIONS:
        made = operation_kind(last, args, keywords)
        return moved_to(made, keywords, texts) if last in LIKE else made
    if last in torch_ops.FUNCTIONS_TUPLE:
        return Kind("nested", element=placed(TENSOR, args))
    if last in torch_ops.FUNCTIONS_HOST or last in _ANSWERS:
        return SCALAR
    if last == "device":
        return Kind("other", host=CPU.search(texts.get("0", "")) is not None)
    if last in LIMITS:
        return Kind("other", cls=f"torch.{last}")
    if last in ("dtype", "Size", "Generator", "Stream", "Event"):
        return OTHER
    if last.startswith("_cast_") and args and args[0].is_tensor:
        return placed(args[0].maybe(), args)  # `torch._cast_Int(x)`
    return None


def _dimensions(factory: str, args: Sequence[Kind]) -> int | None:
    """How many dimensions a new tensor has, where its arguments tell."""
    given = args[0] if args else UNKNOWN
    if factory in ("tensor", "scalar_tensor", "as_tensor", "asarray"):
        if given.what == "scalar":
            return 0
        flat = given.what == "nested" and given.element is not None
        return 1 if flat and given.element and given.element.what == "scalar" else None
    if factory in ("arange", "linspace", "logspace", "randperm"):
        return 1
    if factory not in ("zeros", "ones", "empty", "full", "rand", "randn"):
        return None
    if given.what == "nested" and given.cls == "":
        return len(given.items) if given.items is not None else None
    sizes = args[:1] if factory == "full" else args
    return len(sizes) if sizes and all(size.what == "scalar" for size in sizes) else None


def _all_bool(given: Kind) -> bool:
    """Whether data is a bool, or a sequence of them."""
    inner = given.element if given.what == "nested" else given
    return inner is not None and inner.what == "scalar" and inner.dtype == "bool"


def _all_int(args: Sequence[Kind]) -> bool:
    return all(a.what == "scalar" and a.dtype in ("int", "") for a in args)
