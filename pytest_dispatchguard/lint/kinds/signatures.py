"""What torch (and a little of Python) gives back: the kind of a call, a method, an attribute,
an annotation."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from pytest_dispatchguard.lint.facts import CPU_ATTRIBUTES, Value
from pytest_dispatchguard.lint.kinds import torch_ops
from pytest_dispatchguard.lint.kinds.kinds import (
    DICT,
    EMPTY,
    EMPTY_DICT,
    FUNCTION,
    MODULE,
    NESTED,
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


_JOINING = frozenset("cat concat concatenate stack hstack vstack".split())
BOOL_RESULT = frozenset(
    "eq ne lt le gt ge less less_equal greater greater_equal not_equal isnan isinf isfinite isin "
    "isclose isreal "
    "isneginf isposinf logical_and logical_or logical_not logical_xor all any signbit bool".split()
)
INT_RESULT = frozenset(
    "argmax argmin argsort argwhere nonzero randint randperm bincount count_nonzero searchsorted "
    "bucketize long int "
    "short byte char tril_indices triu_indices one_hot".split()
)
REDUCTIONS = frozenset(
    "all any sum mean prod std var norm amax amin max min median nanmedian nansum nanmean argmax "
    "argmin logsumexp "
    "count_nonzero numel".split()
)
"""Tensor methods that give one number (still a tensor) when called without a dimension."""

TENSOR_ATTRIBUTES = frozenset("T mT H mH grad data real imag".split())
HOST_ATTRIBUTES = frozenset(
    "ndim requires_grad is_cuda is_leaf is_sparse is_quantized is_meta is_mps is_xpu is_cpu is_nested "
    "itemsize nbytes output_nr retains_grad is_mkldnn is_vulkan is_ipu is_mtia".split()
)
OTHER_ATTRIBUTES = frozenset("dtype device layout grad_fn names".split())

TENSOR_CLASSES = frozenset(
    {
        "torch.Tensor",
        "torch.FloatTensor",
        "torch.LongTensor",
        "torch.IntTensor",
        "torch.BoolTensor",
        "torch.HalfTensor",
        "torch.DoubleTensor",
        "torch.ByteTensor",
        "torch.nn.Parameter",
        "torch.nn.parameter.Parameter",
        "torch._tensor.Tensor",
        "torch.nn.Buffer",
        "torch.cuda.FloatTensor",
        "torch.cuda.LongTensor",
        "torch.autograd.Variable",
        "torchtyping.TensorType",
    }
)
_JAXTYPING = frozenset(
    "Float Int Bool Num Shaped Integer Real Complex Inexact Float16 Float32 Float64 Int32 Int64 UInt8".split()
)
_MODULE_LISTS = frozenset({"torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ModuleDict"})
_TUPLE_MODULES = frozenset(
    "LSTM GRU RNN MultiheadAttention LSTMCell AdaptiveLogSoftmaxWithLoss".split()
)
_HOST_BUILTINS = frozenset(
    "len int float bool complex isinstance issubclass hasattr callable id hash ord any all".split()
)
_TEXT_BUILTINS = frozenset({"str", "repr", "format", "chr", "hex", "bin", "ascii"})


def is_tensor_class(name: str, extra: Collection[str] = ()) -> bool:
    """Whether a dotted name is a tensor class."""
    return name in TENSOR_CLASSES or name in extra


def is_module_class(name: str) -> bool:
    """Whether a dotted library name is a class of modules (`torch.nn.Linear`)."""
    if not name.startswith("torch.nn."):
        return False
    last = name.rpartition(".")[2]
    return (
        last[:1].isupper()
        and not is_tensor_class(name)
        and last not in ("Buffer", "UninitializedParameter")
    )


def on_cpu(kind: Kind) -> Kind:
    """The same, where its tensors are known to be on the CPU."""
    if kind.what == "nested":
        element = on_cpu(kind.element) if kind.element is not None else None
        items = tuple(map(on_cpu, kind.items)) if kind.items is not None else None
        return replace(kind, element=element, items=items)
    if kind.what == "tensor":
        return replace(kind, host=True)
    return (
        Kind("tensor", sure=False, host=True) if kind.what == "unknown" and not kind.cls else kind
    )


def function_kind(
    name: str, args: Sequence[Kind], keywords: Mapping[str, Kind], texts: Mapping[str, str]
) -> Kind | None:
    """What `name(...)` gives, for a dotted name of torch or Python; None where nothing is known."""
    if name.startswith("torch."):
        return _torch_kind(name, args, keywords, texts)
    if name.startswith(("numpy.", "np.", "math.", "cupy.", "scipy.")):
        return SCALAR if name.startswith("math.") else Kind("other", cls="numpy")
    if name in ("dict", "collections.OrderedDict"):
        return DICT if args or keywords else EMPTY_DICT
    if name == "collections.deque" and not args:
        return EMPTY
    if name == "collections.defaultdict":
        return DICT
    if "." not in name:
        return _builtin_kind(name, args)
    if name.startswith("einops."):
        return _follow(args, TENSOR) if args else TENSOR
    if name in ("functools.partial", "functools.partialmethod"):
        return FUNCTION
    if name.startswith(
        ("os.", "time.", "inspect.", "logging.", "warnings.", "re.", "json.", "random.")
    ):
        return OTHER
    return None


def _builtin_kind(name: str, args: Sequence[Kind]) -> Kind | None:
    if name in _HOST_BUILTINS or name == "ord":
        return SCALAR
    if name in _TEXT_BUILTINS:
        return TEXT
    if name == "range":
        return Kind("nested", element=SCALAR)
    if name in ("list", "tuple", "set", "sorted", "reversed", "frozenset", "iter"):
        if not args:
            return EMPTY
        return Kind("nested", element=element_of(args[0]))
    if name == "enumerate" and args:
        inner = element_of(args[0])
        return Kind(
            "nested", element=Kind("nested", items=(SCALAR, inner), element=join(SCALAR, inner))
        )
    if name == "zip":
        parts = tuple(element_of(a) for a in args)
        return Kind("nested", element=Kind("nested", items=parts, element=UNKNOWN))
    if name in ("sum", "max", "min"):
        if len(args) == 1:
            inner = element_of(args[0])
            return replace(inner, ndim=None) if inner.what == "tensor" else inner
        kinds = {a.what for a in args}
        if "tensor" in kinds:
            return TENSOR.maybe() if kinds != {"tensor"} else _follow(args, TENSOR)
        return SCALAR if kinds == {"scalar"} else UNKNOWN
    if name in ("abs", "round", "pow", "divmod") and args:
        return (
            args[0]
            if args[0].what == "tensor"
            else (SCALAR if args[0].what == "scalar" else UNKNOWN)
        )
    if name in (
        "type",
        "super",
        "object",
        "slice",
        "memoryview",
        "bytes",
        "bytearray",
        "open",
        "vars",
        "dir",
    ):
        return OTHER
    if name == "print":
        return NONE
    return None


def _torch_kind(
    name: str, args: Sequence[Kind], keywords: Mapping[str, Kind], texts: Mapping[str, str]
) -> Kind | None:
    if is_tensor_class(name):
        return Kind(
            "tensor",
            host=name.endswith("Tensor") and "cuda" not in name and "Parameter" not in name,
        )
    if is_module_class(name):
        return Kind("modules" if name in _MODULE_LISTS else "module", cls=name)
    head, _, last = name.rpartition(".")
    if head == "torch.Tensor" and args:
        return method_kind(args[0], last, args[1:], keywords, texts)
    if head in ("torch.nn.functional", "torch.nn.init"):
        if last in torch_ops.NN_FUNCTIONS or last in torch_ops.FUNCTIONS:
            if last in ("max_pool1d", "max_pool2d", "max_pool3d") and "return_indices" in keywords:
                return TENSORS
            return _result(last, args, keywords)
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
        return _result(last, args, keywords)
    if head == "torch":
        return _op_kind(last, args, keywords, texts)
    if head == "torch.distributed":
        return SCALAR if last.startswith(("get_", "is_")) else None
    if head in ("torch.cuda", "torch.backends", "torch.backends.cuda", "torch.accelerator"):
        return OTHER
    if name in ("torch.utils.checkpoint.checkpoint", "torch.ops"):
        return None
    return None


def _op_kind(
    last: str, args: Sequence[Kind], keywords: Mapping[str, Kind], texts: Mapping[str, str]
) -> Kind | None:
    if last in FACTORIES:
        device = texts.get("device", "")
        on_cpu = device in ("", "None") or _CPU.search(device) is not None
        on_cpu = on_cpu or keywords.get("device", UNKNOWN).host
        given = args[0] if args else UNKNOWN
        if last in ("complex", "normal") and _tensor_args(args):
            return _follow(args, TENSOR)
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
            ndim=_dimensions(last, given),
        )
    if last == "where":
        return (
            Kind("nested", element=_follow(args, Kind("tensor", dtype="int")))
            if len(args) == 1
            else _follow(args, TENSOR)
        )
    if last in torch_ops.FUNCTIONS_OVERLOADED:
        two = len(args) > 1 and args[1].what == "tensor"
        if two:
            return _result(last, args, keywords)
        split = len(args) > 1 or any(
            k in keywords for k in ("dim", "axis", "return_inverse", "return_counts")
        )
        if split:
            return Kind("nested", element=_follow(args, TENSOR))
        return _result(last, args, keywords)
    if last in torch_ops.FUNCTIONS:
        made = _result(last, args, keywords)
        return _told_device(made, keywords, texts) if last in LIKE else made
    if last in torch_ops.FUNCTIONS_TUPLE:
        return Kind("nested", element=_follow(args, TENSOR))
    if last in torch_ops.FUNCTIONS_HOST or last in (
        "is_tensor",
        "is_grad_enabled",
        "is_autocast_enabled",
    ):
        return SCALAR
    if last == "device":
        return Kind("other", host=_CPU.search(texts.get("0", "")) is not None)
    if last in ("dtype", "Size", "Generator", "Stream", "Event", "finfo", "iinfo"):
        return OTHER
    return None


def _told_device(made: Kind, keywords: Mapping[str, Kind], texts: Mapping[str, str]) -> Kind:
    """A tensor like another, which an argument may put elsewhere."""
    device = texts.get("device", "")
    if device in ("", "None"):
        return made
    on_cpu = _CPU.search(device) is not None or keywords.get("device", UNKNOWN).host
    return replace(made, host=on_cpu)


def _dimensions(factory: str, given: Kind) -> int | None:
    """How many dimensions a new tensor has, where its first argument tells."""
    if factory in ("tensor", "scalar_tensor", "as_tensor", "asarray"):
        if given.what == "scalar":
            return 0
        flat = given.what == "nested" and given.element is not None
        return 1 if flat and given.element and given.element.what == "scalar" else None
    if factory in ("arange", "linspace", "logspace", "randperm"):
        return 1
    empty = given.what == "nested" and given.items == () and given.cls == ""
    return 0 if factory in ("zeros", "ones", "empty", "full", "rand", "randn") and empty else None


def _all_bool(given: Kind) -> bool:
    """Whether data is a bool, or a sequence of them."""
    inner = given.element if given.what == "nested" else given
    return inner is not None and inner.what == "scalar" and inner.dtype == "bool"


def _all_int(args: Sequence[Kind]) -> bool:
    return all(a.what == "scalar" and a.dtype in ("int", "") for a in args)


def dtype_of(text: str) -> Dtype:
    """bool, int or float for the text of a dtype argument; empty where it does not tell."""
    last = text.rpartition(".")[2]
    if last == "bool":
        return "bool"
    if last in ("long", "int", "short", "int8", "int16", "int32", "int64", "uint8"):
        return "int"
    return "float" if last.startswith(("float", "bfloat", "half", "double")) else ""


def _tensor_args(args: Sequence[Kind]) -> list[Kind]:
    out: list[Kind] = []
    for a in args:
        if a.what == "tensor":
            out.append(a)
        elif a.what == "nested":
            out.extend(i for i in (a.items or (a.element,)) if i is not None and i.what == "tensor")
    return out


def placed(result: Kind, parts: Sequence[Kind]) -> Kind:
    """What an operation gives, with what its operands tell of where it is: on the CPU when a CPU tensor is
    among them and no other. A CPU tensor of no dimension goes with tensors of any device, so that beside an
    unknown operand it proves nothing: then nobody is sure."""
    tensors = _tensor_args(parts)
    hosts = [t for t in tensors if t.host]
    if not tensors and parts and all(p.what in ("scalar", "text", "none") for p in parts):
        return replace(result, host=True)  # `torch.div(7, 2)` makes its tensor of numbers
    if not tensors and parts and parts[0].what == "scalar":
        return replace(result, sure=False)  # `torch.div(x.size(1), n)`: of a number or of a tensor
    if hosts and not any(t.sure and not t.host for t in tensors) and len(hosts) < len(tensors):
        return replace(result, host=False, sure=False)  # what is not on the CPU may be no tensor
    if not hosts or len(hosts) < len(tensors):
        roams = any(t.roaming for t in tensors) and not any(t.on_device for t in tensors)
        return replace(result, host=False, roaming=roams)
    if any(_may_hold_more(p) for p in parts) and not any(_has_dimensions(t) for t in hosts):
        return replace(result, host=False, sure=False)
    return replace(result, host=True)


def followed(result: Kind, parts: Sequence[Kind]) -> Kind:
    """What a function of the project gives, with what its arguments tell of where it is: on the CPU when all
    the tensors among them are, and nobody is sure where they come from tables of unsure values."""
    tensors = _tensor_args(parts)
    host = bool(tensors) and all(t.host for t in tensors)
    tables = any(p.cls == "dict" and p.element is not None and not p.element.sure for p in parts)
    if any(t.on_device for t in tensors) or not (host or tables):
        return result

    def moved(kind: Kind) -> Kind:
        if kind.what == "tensor":
            return replace(kind, host=kind.host or host, sure=kind.sure and host)
        if kind.what != "nested":
            return kind
        return replace(
            kind,
            element=moved(kind.element) if kind.element is not None else None,
            items=tuple(moved(i) for i in kind.items) if kind.items is not None else None,
        )

    return moved(result)


def _may_hold_more(kind: Kind) -> bool:
    """Whether a value may be, or hold, tensors that are not known."""
    return kind.what == "unknown" or (kind.what == "nested" and not (kind.items or kind.element))


def _has_dimensions(tensor: Kind) -> bool:
    return tensor.ndim != 0 and not (tensor.built and tensor.ndim is None)


def _follow(args: Sequence[Kind], base: Kind) -> Kind:
    """A tensor that is on the CPU when all the tensors it is made of are."""
    return placed(base, args)


def _result(name: str, args: Sequence[Kind], keywords: Mapping[str, Kind]) -> Kind:
    dtype: Dtype = "bool" if name in BOOL_RESULT else "int" if name in INT_RESULT else ""
    if name in _JOINING and args and args[0].what == "nested":
        parts = args[0].items or ((args[0].element,) if args[0].element is not None else ())
        dtypes = {part.dtype for part in parts if part is not None}
        dtype = dtypes.pop() if len(dtypes) == 1 else ""
    whole = (
        name in REDUCTIONS and len(args) <= 1 and not ({"dim", "axis", "keepdim"} & set(keywords))
    )
    return replace(
        _follow([*args, *keywords.values()], TENSOR),
        dtype=dtype,
        ndim=0 if whole else None,
    )


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
    if receiver.what == "nested":
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


_TENSORS_ALONE = frozenset(
    """unsqueeze unsqueeze_ detach detach_ masked_fill masked_fill_ masked_scatter masked_select new_zeros
    new_ones new_tensor new_full new_empty type_as index_select scatter_ logsumexp unbind clamp clamp_
    clamp_min clamp_max view_as reshape_as expand_as is_floating_point add_ mul_ sub_ div_ copy_ fill_ zero_
    repeat_interleave unflatten index_add index_add_ index_copy_ index_fill_ bmm addmm baddbmm index_put_
    scatter_add_ scatter_reduce scatter_reduce_ nan_to_num movedim narrow uniform_ normal_ amax amin
    logical_not logical_and logical_or bitwise_not long bool byte short isnan isinf isfinite log_softmax
    argmax_ cumsum_ untyped_storage""".split()
)
"""Methods of tensors that neither arrays nor modules have: whatever has one called is a tensor."""
_CASTS = frozenset(
    "float half double bfloat16 int abs exp log sqrt pow square clone contiguous to cuda softmax "
    "sigmoid".split()
)
"""Methods of tensors that others have as well."""
_COMPARES = frozenset("gt lt ge le eq ne".split())
TENSOR_MAKERS = frozenset(
    "FloatTensor LongTensor IntTensor BoolTensor HalfTensor DoubleTensor ByteTensor BFloat16Tensor".split()
)
"""Classes of tensors by their last names; of an accelerator, unless they are torch's own."""


def untold_method_kind(
    name: str,
    args: Sequence[Kind],
    keywords: Mapping[str, Kind],
    texts: Mapping[str, str],
    chained: bool,
) -> Kind | None:
    """What a method gives of a receiver of which nothing is known but that it has it; `chained`, the
    receiver is what a method of tensors gave."""
    if name in _TENSORS_ALONE:
        return _tensor_method(TENSOR, name, args, keywords, texts)
    if name == "view" and args and all(arg.what == "scalar" for arg in args):
        return TENSOR  # what NumPy has of that name takes a type
    if name == "nonzero" and "as_tuple" in keywords:
        return _tensor_method(TENSOR, name, args, keywords, texts)
    if name in TENSOR_MAKERS:
        return Kind("tensor", built=True)
    if name == "norm" and (not args or args[0].what == "scalar"):
        return Kind("tensor", ndim=0 if len(args) <= 1 and "dim" not in keywords else None)
    if chained and name in REDUCTIONS | _COMPARES | {"norm"}:
        return _tensor_method(TENSOR, name, args, keywords, texts)
    if name in _CASTS | _COMPARES:
        made = _tensor_method(TENSOR, name, args, keywords, texts)
        return made.maybe() if made is not None else None
    if name in ("parameters", "buffers") and not args:
        return TENSORS
    if name in ("named_parameters", "named_buffers"):
        return Kind("nested", element=Kind("nested", items=(TEXT, TENSOR), element=UNKNOWN))
    return None


def is_cast(name: str) -> bool:
    """Whether a method is one that keeps a tensor one."""
    return name in _CASTS


def _tensor_method(
    receiver: Kind,
    name: str,
    args: Sequence[Kind],
    keywords: Mapping[str, Kind],
    texts: Mapping[str, str],
) -> Kind | None:
    sure = receiver.sure
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
    elif name == "cpu":
        kind = replace(receiver, host=True, built=False)
    elif name == "cuda":
        kind = replace(receiver, host=False, built=False)
    elif name in ("to", "type"):
        kind = _moved(receiver, args, keywords, texts)
    elif name in torch_ops.METHODS_OVERLOADED:
        two = bool(args) and args[0].what == "tensor"
        split = not two and (args or {"dim", "return_inverse", "return_counts"} & set(keywords))
        kind = (
            Kind("nested", element=replace(TENSOR, host=receiver.host))
            if split
            else _result(name, [receiver, *args] if two else [receiver], keywords)
        )
    elif name in torch_ops.METHODS_TUPLE:
        kind = Kind("nested", element=Kind("tensor", host=receiver.host, dtype=receiver.dtype))
    elif name in torch_ops.METHODS or name.endswith("_"):
        dims: list[Kind] = [a for a in args if a.what != "tensor"] if name in REDUCTIONS else []
        whole = name in REDUCTIONS and not dims and not ({"dim", "axis", "keepdim"} & set(keywords))
        keeps = (
            receiver.dtype
            if name not in BOOL_RESULT | INT_RESULT and name in _DTYPE_KEEPERS
            else ""
        )
        kind = replace(
            _follow([receiver, *args], TENSOR),
            dtype="bool" if name in BOOL_RESULT else "int" if name in INT_RESULT else keeps,
            ndim=0
            if whole
            else (
                receiver.ndim
                if name in ("detach", "clone", "bool", "long", "int", "float")
                else None
            ),
        )
        if name.startswith("new_"):
            kind = _told_device(replace(kind, host=receiver.host), keywords, texts)
    elif name in ("register_hook", "backward", "retain_grad"):
        kind = NONE
    elif name in ("data_ptr", "get_device", "nelement", "ndimension", "type_"):
        kind = SCALAR
    else:
        return None
    return kind if sure else replace(kind, sure=False)


_DTYPE_KEEPERS = frozenset(
    "view reshape permute transpose squeeze unsqueeze expand expand_as contiguous clone detach "
    "flatten repeat roll "
    "index_select gather select narrow flip t unfold view_as reshape_as unflatten movedim tril "
    "triu masked_fill "
    "repeat_interleave tile take cumsum".split()
)


def _moved(
    receiver: Kind, args: Sequence[Kind], keywords: Mapping[str, Kind], texts: Mapping[str, str]
) -> Kind:
    first = texts.get("0", "")
    target = texts.get("device", first)
    host = receiver.host
    if _CPU.search(target):
        host = True
    elif target and not dtype_of(target) and "dtype" not in target and "torch." not in target:
        other = args[0] if args else UNKNOWN
        host = other.host  # .to(other) takes other's device; so does .to(other.device)
    dtype = dtype_of(texts.get("dtype", "") or first) or receiver.dtype
    return replace(receiver, host=host, dtype=dtype, built=False)


def attribute_kind(receiver: Kind, name: str) -> Kind | None:
    """What `receiver.name` gives, for receivers whose kind says enough."""
    if receiver.what == "tensor":
        if name == "shape":
            return SHAPE
        if name in TENSOR_ATTRIBUTES:
            dtype = receiver.dtype if name in ("T", "mT", "data") else ""
            return Kind(
                "tensor",
                sure=receiver.sure,
                host=receiver.host,
                dtype=dtype,
                optional=name == "grad",
            )
        if name in HOST_ATTRIBUTES:
            return SCALAR
        if name == "device":
            return Kind("other", host=receiver.host and receiver.sure)
        if name in OTHER_ATTRIBUTES:
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


def element_of(kind: Kind) -> Kind:
    """What iterating over a value gives."""
    if kind.what == "nested":
        if kind.cls == "dict":
            return UNKNOWN  # its keys
        if kind.element is not None and kind.element.what != "unknown":
            return kind.element
        if kind.items:
            out = kind.items[0]
            for item in kind.items[1:]:
                out = join(out, item)
            return out
        return UNKNOWN
    if kind.what == "tensor":
        return replace(kind, ndim=None, optional=False)
    if kind.what == "modules":
        return MODULE
    if kind.what == "text":
        return TEXT
    return UNKNOWN


def module_call_kind(cls: str) -> Kind | None:
    """What calling an instance of a library module gives."""
    if cls.startswith("torch.nn."):
        last = cls.rpartition(".")[2]
        if last in _TUPLE_MODULES:
            return Kind("nested", element=UNKNOWN)
        if last in ("Sequential", "ModuleList", "Module"):
            return None
        return TENSOR
    return None


_CPU = re.compile(r"""["']cpu(?::\d+)?["']""")
_OPTIONAL = re.compile(r"^(?:typing\.)?Optional\[(.*)\]$", re.S)
_UNION = re.compile(r"^(?:typing\.)?Union\[(.*)\]$", re.S)
_SEQUENCE = re.compile(
    r"^(?:typing\.|collections\.abc\.)?"
    r"(List|list|Sequence|Iterable|Iterator|Set|set|frozenset|Tuple|tuple|Dict|dict|Mapping|OrderedDict|Collection)\[(.*)\]$",
    re.S,
)


def split_top(text: str, separator: str) -> list[str]:
    """Splits at a separator that no bracket or quote encloses."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        if c in "[(":
            depth += 1
        elif c in "])":
            depth -= 1
        elif c == separator and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [p for p in parts if p]


def _first_inside(annotation: str) -> str:
    """``int`` of ``Annotated[int, "a word"]``; empty where there is nothing."""
    parts = split_top(annotation.partition("[")[2].removesuffix("]"), ",")
    return parts[0] if parts else ""


@lru_cache(maxsize=4096)
def annotation_kind(text: str, tensor_types: tuple[str, ...] = ()) -> Kind:
    """The kind that an annotation promises; names in it are dotted and resolved where possible."""
    text = text.strip()
    if text[:1] in "\"'":
        text = text.strip("\"'").strip()
    if not text:
        return UNKNOWN
    if match := _OPTIONAL.match(text):
        return join(annotation_kind(match[1], tensor_types), NONE)
    parts = split_top(text, "|")
    if len(parts) == 1 and (match := _UNION.match(text)):
        parts = split_top(match[1], ",")
    if len(parts) > 1:
        kinds = [annotation_kind(p, tensor_types) for p in parts]
        out = kinds[0]
        for kind in kinds[1:]:
            out = join(out, kind)
        return out
    base = text.partition("[")[0].strip()
    last = base.rpartition(".")[2]
    if last in ("Annotated", "Final", "ClassVar", "Required", "NotRequired"):
        return annotation_kind(_first_inside(text), tensor_types)
    if is_tensor_class(base, tensor_types) or last in (
        "Tensor",
        "FloatTensor",
        "LongTensor",
        "BoolTensor",
        "IntTensor",
    ):
        if (
            base.startswith(("tf.", "tensorflow.", "jax.", "paddle.", "keras."))
            and base not in tensor_types
        ):
            return UNKNOWN
        named: dict[str, Dtype] = {"LongTensor": "int", "IntTensor": "int", "BoolTensor": "bool"}
        return Kind("tensor", dtype=named.get(last, ""))
    if last in _JAXTYPING and "[" in text and (base == last or base.startswith("jaxtyping.")):
        return annotation_kind(_first_inside(text), tensor_types)
    if base in (
        "int",
        "float",
        "bool",
        "complex",
        "numbers.Number",
        "Number",
        "torch.types.Number",
    ):
        dtype = base if base in ("int", "float", "bool") else ""
        return Kind("scalar", dtype=dtype)  # type: ignore[arg-type]  # one of the four
    if base in ("str", "bytes") or last == "Literal":
        return TEXT
    if base == "None":
        return NONE
    if match := _SEQUENCE.match(text):
        return _sequence_kind(match[1], match[2], tensor_types)
    if base in (
        "list",
        "tuple",
        "List",
        "Tuple",
        "set",
        "typing.List",
        "typing.Tuple",
    ):
        return NESTED
    if base in ("dict", "Dict", "typing.Dict", "OrderedDict", "collections.OrderedDict"):
        return DICT
    if last in ("Callable", "Type"):
        return FUNCTION
    if base in ("torch.Size",) or last == "Size":
        return SHAPE
    if base in (
        "torch.device",
        "torch.dtype",
        "torch.Generator",
        "torch.memory_format",
        "numpy.ndarray",
        "np.ndarray",
    ):
        return Kind("other", cls="numpy" if "nd" in base else "")
    if is_module_class(base) or base == "torch.nn.Module":
        return Kind("modules" if base in _MODULE_LISTS else "module", cls=base)
    if last in ("Any", "object", "TensorLike") or base == "typing.Any":
        return UNKNOWN
    return Kind("unknown", cls=base)


def _sequence_kind(name: str, inside: str, tensor_types: tuple[str, ...]) -> Kind:
    parts = split_top(inside, ",")
    lowered = name.lower()
    if lowered in ("dict", "mapping", "ordereddict"):
        return Kind(
            "nested",
            element=annotation_kind(parts[-1], tensor_types) if len(parts) > 1 else UNKNOWN,
            cls="dict",
        )
    kinds = [annotation_kind(p, tensor_types) for p in parts if p != "..."]
    if lowered == "tuple" and "..." not in parts:
        out = kinds[0] if kinds else UNKNOWN
        for kind in kinds[1:]:
            out = join(out, kind)
        return Kind("nested", items=tuple(kinds), element=out)
    return Kind("nested", element=kinds[0] if kinds else UNKNOWN)


_WEIGHTED = tuple(
    "Linear Conv Embedding LayerNorm BatchNorm GroupNorm InstanceNorm RMSNorm Bilinear PReLU LazyConv "
    "LazyLinear".split()
)


def inherited_kind(name: str, ancestors: Sequence[str]) -> Kind:
    """The kind of an attribute that torch's own modules bring to their subclasses."""
    if name in ("weight", "bias"):
        for ancestor in ancestors:
            head, _, last = ancestor.rpartition(".")
            if head.startswith("torch.nn") and last.startswith(_WEIGHTED):
                return Kind("tensor", optional=name == "bias")
    return UNKNOWN


@lru_cache(maxsize=4096)
def value_kind(value: Value, tensor_types: tuple[str, ...] = ()) -> Kind:
    """The kind of what a fact's value word stands for."""
    head, _, rest = value.partition(":")
    if head == "call":
        if is_tensor_class(rest, tensor_types):
            return Kind("tensor")
        kind = function_kind(rest, (), {}, {})
        if kind is not None:
            # An attribute may be moved later: a tensor in it is not known to stay on the CPU.
            if kind.what != "tensor":
                return kind
            return replace(kind, host=False, roaming=kind.host, built=False)
        return Kind("unknown", cls=rest)
    if head == "ann":
        return annotation_kind(rest, tensor_types)
    simple: dict[str, Kind] = {
        "param": TENSOR,
        "buffer": TENSOR,
        "int": Kind("scalar", dtype="int"),
        "float": Kind("scalar", dtype="float"),
        "bool": Kind("scalar", dtype="bool"),
        "str": TEXT,
        "none": NONE,
        "tuple": NESTED,
        "list": NESTED,
        "dict": DICT,
        "function": FUNCTION,
    }
    return simple.get(head, UNKNOWN)


def values_kind(values: Sequence[Value], tensor_types: tuple[str, ...] = ()) -> Kind:
    """The kind of a name that is assigned several values."""
    values = [value for value in values if not value.startswith("item:")]
    promised = [v for v in values if v.startswith("ann:") and value_kind(v, tensor_types).is_tensor]
    if promised:
        values = [*promised, *(v for v in values if v == "none")]
    if not values:
        return UNKNOWN
    out = value_kind(values[0], tensor_types)
    for value in values[1:]:
        out = join(out, value_kind(value, tensor_types))
    if out.roaming and not {"param", "buffer"}.isdisjoint(values):
        return replace(out, roaming=False)  # goes where its module goes
    return out
