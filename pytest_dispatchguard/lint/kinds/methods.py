"""What methods and attributes give: of tensors, modules, strings and containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_dispatchguard.lint.facts import CPU_ATTRIBUTES
from pytest_dispatchguard.lint.kinds import torch_ops
from pytest_dispatchguard.lint.kinds.kinds import (
    MODULE,
    NONE,
    OTHER,
    SCALAR,
    SHAPE,
    TENSOR,
    TENSORS,
    TEXT,
    UNKNOWN,
    Dtype,
    Kind,
    join,
)
from pytest_dispatchguard.lint.kinds.operations import (
    BOOL_RESULT,
    INT_RESULT,
    REDUCTIONS,
    dtype_of,
    operation_kind,
)
from pytest_dispatchguard.lint.kinds.placement import CPU, moved_to, placed

_TYPED_TENSORS = frozenset(
    "FloatTensor LongTensor IntTensor BoolTensor HalfTensor DoubleTensor ByteTensor BFloat16Tensor".split()
)
"""Classes of tensors by their last names; of an accelerator, unless they are torch's own."""
_TENSOR_ATTRIBUTES = frozenset("T mT H mH grad data real imag".split())
_HOST_ATTRIBUTES = frozenset(
    "ndim requires_grad is_cuda is_leaf is_sparse is_quantized is_meta is_mps is_xpu is_cpu is_nested "
    "itemsize nbytes output_nr retains_grad is_mkldnn is_vulkan is_ipu is_mtia".split()
)
_OTHER_ATTRIBUTES = frozenset("dtype device layout grad_fn names".split())


METHODS_OF_TENSORS = (
    torch_ops.METHODS
    | torch_ops.METHODS_HOST
    | torch_ops.METHODS_OVERLOADED
    | {"cpu", "item", "numpy", "tolist"}
) - {"index", "values"}
"""What tensors have, and lists, tuples and tables do not."""


def method_kind(
    receiver: Kind,
    name: str,
    args: Sequence[Kind],
    keywords: Mapping[str, Kind],
    texts: Mapping[str, str],
) -> Kind | None:
    """What `receiver.name(...)` gives, for receivers whose kind says enough; None otherwise."""
    if name == "__len__":
        return SCALAR
    if receiver.what == "tensor":
        return _tensor_method(receiver, name, args, keywords, texts)
    if receiver.what == "text":
        return (
            TEXT
            if name not in ("split", "rsplit", "splitlines", "partition", "rpartition")
            else Kind("nested", element=TEXT)
        )
    if receiver.cls == "numpy":
        return Kind("other", cls="numpy")
    either = receiver.what == "unknown" and name in ("values", "items")
    if receiver.what == "nested" or (either and receiver.element is not None):
        if name in ("pop", "get", "__getitem__") and receiver.element:
            return receiver.element if name == "pop" else join(receiver.element, NONE)
        if name == "copy":
            return receiver
        if name == "values":
            return Kind("nested", element=receiver.element or UNKNOWN)
        if name == "keys":
            return Kind("nested", element=TEXT)
        if name == "items":
            inner = receiver.element or UNKNOWN
            return Kind("nested", element=Kind("nested", items=(TEXT, inner), element=UNKNOWN))
        if name in ("index", "count", "numel"):
            return SCALAR
    if receiver.what in ("module", "modules"):
        if name in ("to", "cuda", "cpu", "eval", "train", "half", "float", "bfloat16", "double"):
            return receiver
        if name in ("parameters", "buffers"):
            return TENSORS
        if name in ("modules", "children"):
            return Kind("nested", element=MODULE)
    return None


_TENSOR_ONLY = frozenset(
    """unsqueeze unsqueeze_ detach detach_ masked_fill masked_fill_ masked_scatter masked_select new_zeros
    new_ones new_tensor new_full new_empty type_as index_select scatter_ logsumexp unbind clamp clamp_
    clamp_min clamp_max view_as reshape_as expand_as is_floating_point add_ mul_ sub_ div_ copy_ fill_ zero_
    repeat_interleave unflatten index_add index_add_ index_copy_ index_fill_ bmm addmm baddbmm index_put_
    scatter_add_ scatter_reduce scatter_reduce_ nan_to_num movedim narrow uniform_ normal_ amax amin
    logical_not logical_and logical_or bitwise_not long bool byte short isnan isinf isfinite log_softmax
    argmax_ cumsum_ untyped_storage bincount topk kthvalue nansum nanmean count_nonzero histc logcumsumexp
    rsqrt lerp lerp_ tril triu take_along_dim unique_consecutive isclose bitwise_and bitwise_or index_put
    diag_embed erf log1p log2 expm1 cummax cummin""".split()
)
"""Methods of tensors that neither arrays nor modules have: whatever has one called is a tensor."""


_REDUCING = frozenset(
    "amax amin argmax argmin argsort cumprod cumsum flip log_softmax logsumexp max mean median min norm prod "
    "softmax sort squeeze std sum topk unsqueeze var".split()
)
"""Methods that tensors take a `dim` for."""


_SHARED = frozenset(
    "float half double bfloat16 int abs exp log sqrt pow square clone contiguous to cuda softmax "
    "sigmoid".split()
)
"""Methods of tensors that others have as well."""


_COMPARISONS = frozenset("gt lt ge le eq ne".split())


def method_kind_by_name(
    name: str,
    args: Sequence[Kind],
    keywords: Mapping[str, Kind],
    texts: Mapping[str, str],
    chained: bool,
) -> Kind | None:
    """What a method gives of a receiver of which nothing is known but that it has it; `chained`, the
    receiver is what a method of tensors gave."""
    if name in _TENSOR_ONLY:
        return _tensor_method(TENSOR, name, args, keywords, texts)
    if name == "view" and args and all(arg.what == "scalar" for arg in args):
        return TENSOR  # what NumPy has of that name takes a type
    if name == "nonzero" and "as_tuple" in keywords:
        return _tensor_method(TENSOR, name, args, keywords, texts)
    if name in _REDUCING and any(
        keywords[word].what == "scalar" and keywords[word].dtype in ("bool", "int")
        for word in ("dim", "keepdim")
        if word in keywords
    ):
        return _tensor_method(TENSOR, name, args, keywords, texts)  # arrays have axes, or names
    if name in _TYPED_TENSORS:
        return Kind("tensor", built=True)
    if name == "norm" and (not args or args[0].what == "scalar"):
        return Kind("tensor", ndim=0 if len(args) <= 1 and "dim" not in keywords else None)
    if chained and name in REDUCTIONS | _COMPARISONS | {"norm"}:
        return _tensor_method(TENSOR, name, args, keywords, texts)
    if name in _SHARED | _COMPARISONS:
        made = _tensor_method(TENSOR, name, args, keywords, texts)
        return made.maybe() if made is not None else None
    if name in ("parameters", "buffers") and not args:
        return TENSORS
    if name in ("named_parameters", "named_buffers"):
        return Kind("nested", element=Kind("nested", items=(TEXT, TENSOR), element=UNKNOWN))
    return None


def returns_tensor(name: str) -> bool:
    """Whether a method is one that keeps a tensor one."""
    return name in _SHARED


_SHAPE_KEEPERS = frozenset("detach clone bool long int float".split())
_DTYPE_KEEPERS = frozenset(
    "view reshape permute transpose squeeze unsqueeze expand expand_as contiguous clone detach "
    "flatten repeat roll "
    "index_select gather select narrow flip t unfold view_as reshape_as unflatten movedim tril "
    "triu masked_fill "
    "repeat_interleave tile take cumsum".split()
)


def _tensor_method(
    receiver: Kind,
    name: str,
    args: Sequence[Kind],
    keywords: Mapping[str, Kind],
    texts: Mapping[str, str],
) -> Kind | None:
    kind: Kind | None
    if name in ("item", "__int__", "__float__", "__bool__"):
        kind = replace(SCALAR, dtype=receiver.dtype)
    elif name == "tolist":
        kind = Kind("nested", element=SCALAR)
    elif name == "numpy":
        kind = Kind("other", cls="numpy")
    elif name == "size":
        kind = SCALAR if args or "dim" in keywords else SHAPE
    elif name == "stride" and not args:
        kind = SHAPE
    elif name in torch_ops.METHODS_HOST:
        kind = SCALAR
    elif name in ("cpu", "cuda"):
        kind = replace(receiver, host=name == "cpu", built=False, roaming=False)
    elif name == "type" and not args and not keywords:
        kind = TEXT
    elif name in ("to", "type"):
        kind = _cast(receiver, args, keywords, texts)
    elif name in torch_ops.METHODS_OVERLOADED:
        kind = _overloaded_method(receiver, name, args, keywords)
    elif name in torch_ops.METHODS_TUPLE:
        kind = Kind("nested", element=Kind("tensor", host=receiver.host, dtype=receiver.dtype))
    elif name in torch_ops.METHODS or name.endswith("_"):
        kind = _operation_method(receiver, name, args, keywords)
        if name.startswith("new_"):
            kind = moved_to(replace(kind, host=receiver.host), keywords, texts)
    elif name in ("register_hook", "backward", "retain_grad"):
        kind = NONE
    elif name in ("data_ptr", "nelement", "ndimension"):
        kind = SCALAR
    else:
        return None
    return kind if receiver.sure else replace(kind, sure=False)


def _overloaded_method(
    receiver: Kind, name: str, args: Sequence[Kind], keywords: Mapping[str, Kind]
) -> Kind:
    """``x.max()`` and ``x.max(y)`` return a tensor, ``x.max(dim=0)`` returns two."""
    if args and args[0].what == "tensor":
        return operation_kind(name, [receiver, *args], keywords)
    if args or {"dim", "return_inverse", "return_counts"} & set(keywords):
        return Kind("nested", element=replace(TENSOR, host=receiver.host))
    return operation_kind(name, [receiver], keywords)


def _operation_method(
    receiver: Kind, name: str, args: Sequence[Kind], keywords: Mapping[str, Kind]
) -> Kind:
    """The tensor that a method returns: the dtype that its name promises, and how many dimensions it has."""
    ndim = receiver.ndim if name in _SHAPE_KEEPERS else None
    if name in REDUCTIONS:
        dimensions_given = any(a.what != "tensor" for a in args)
        if not dimensions_given and not ({"dim", "axis", "keepdim"} & set(keywords)):
            ndim = 0
    dtype: Dtype = "bool" if name in BOOL_RESULT else "int" if name in INT_RESULT else ""
    if not dtype and name in _DTYPE_KEEPERS:
        dtype = receiver.dtype
    return replace(placed(TENSOR, [receiver, *args]), dtype=dtype, ndim=ndim)


def _cast(
    receiver: Kind, args: Sequence[Kind], keywords: Mapping[str, Kind], texts: Mapping[str, str]
) -> Kind:
    first = texts.get("0", "")
    target = texts.get("device", first)
    host, roaming = receiver.host, receiver.roaming
    if CPU.search(target):
        host, roaming = True, False
    elif "cuda." in target:  # `x.type(torch.cuda.FloatTensor)`
        host = roaming = False
    elif target and not dtype_of(target) and "dtype" not in target and "torch." not in target:
        other = args[0] if args else UNKNOWN
        host = other.host  # .to(other) takes other's device; so does .to(other.device)
        roaming = other.roaming
    dtype = dtype_of(texts.get("dtype", "") or first) or receiver.dtype
    return replace(receiver, host=host, dtype=dtype, built=False, roaming=roaming)


LIMITS = frozenset({"finfo", "iinfo"})
"""What torch calls the classes of a dtype's limits, which are numbers."""


def attribute_kind(receiver: Kind, name: str) -> Kind | None:
    """What `receiver.name` gives, for receivers whose kind says enough."""
    if receiver.cls.removeprefix("torch.") in LIMITS:
        return OTHER if name == "dtype" else SCALAR
    if receiver.what == "tensor":
        if name == "shape":
            return SHAPE
        if name in _TENSOR_ATTRIBUTES:
            dtype = receiver.dtype if name in ("T", "mT", "data") else ""
            return Kind(
                "tensor",
                sure=receiver.sure,
                host=receiver.host,
                dtype=dtype,
                optional=name == "grad",
            )
        if name in _HOST_ATTRIBUTES:
            return SCALAR
        if name == "device":
            return Kind("other", host=receiver.host and receiver.sure)
        if name in _OTHER_ATTRIBUTES:
            return OTHER
        return None
    if receiver.what == "nested" and name in ("values", "indices") and receiver.element:
        return receiver.element
    if receiver.what == "module" and name in ("training",):
        return SCALAR
    if (
        receiver.what == "module"
        and receiver.cls.startswith("torch.nn.")
        and name in ("weight", "bias")
    ):
        return Kind("tensor", optional=name == "bias")
    if name == "shape" or name == "ndim":
        return SHAPE if name == "shape" else SCALAR
    if name in CPU_ATTRIBUTES:
        return Kind("tensor", sure=False, host=True)
    if name == "grad" and receiver.what == "unknown" and not receiver.cls:
        return Kind("tensor", optional=True)
    if name == "param_groups":
        return Kind("nested", element=Kind("nested", element=UNKNOWN, cls="dict"))
    return None
