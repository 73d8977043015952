"""Classes of tensors and of modules, and what instances of torch's modules give."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pytest_dispatchguard.lint.kinds.kinds import TENSOR, UNKNOWN, Kind

_TENSOR_CLASSES = frozenset(
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


MODULE_LISTS = frozenset({"torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ModuleDict"})


_TUPLE_MODULES = frozenset(
    "LSTM GRU RNN MultiheadAttention LSTMCell AdaptiveLogSoftmaxWithLoss".split()
)


def is_tensor_class(name: str, extra: Collection[str] = ()) -> bool:
    """Whether a dotted name is a tensor class."""
    return name in _TENSOR_CLASSES or name in extra


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
