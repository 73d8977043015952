"""DG704: modules without parameters built on every call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from pytest_dispatchguard import Call, Finding, Fix, Place, Rule, nodes

from ..certainty import only_where_given
from ..syntax import (
    assigned_once,
    call_of,
    called_name,
    changed_names,
    further_arguments,
    method_call,
)
from .wrappers import is_only_called


@dataclass(frozen=True, slots=True)
class _Functional:
    """The function that does what a module without parameters does."""

    name: str
    """Dotted."""
    inputs: int
    """How many tensors the module is called with."""
    params: tuple[str, ...] = ()
    """What its constructor takes, in order, and the function takes by the same name."""
    needs: tuple[str, ...] = ()
    """Of these, what must be given for the two to be the same."""
    added: str = ""
    """Given to the function where the constructor's default differs from the function's."""


def _functionals() -> dict[str, _Functional]:
    old = ("size_average", "reduce", "reduction")
    f = "torch.nn.functional."
    pool = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
    max_pool = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
    out = {
        "CrossEntropyLoss": _Functional(
            f + "cross_entropy", 2,
            ("weight", "size_average", "ignore_index", "reduce", "reduction", "label_smoothing"),
        ),
        "NLLLoss": _Functional(
            f + "nll_loss", 2, ("weight", "size_average", "ignore_index", "reduce", "reduction")
        ),
        "MSELoss": _Functional(f + "mse_loss", 2, old),
        "L1Loss": _Functional(f + "l1_loss", 2, old),
        "SmoothL1Loss": _Functional(f + "smooth_l1_loss", 2, (*old, "beta")),
        "HuberLoss": _Functional(f + "huber_loss", 2, ("reduction", "delta")),
        "BCELoss": _Functional(f + "binary_cross_entropy", 2, ("weight", *old)),
        "BCEWithLogitsLoss": _Functional(
            f + "binary_cross_entropy_with_logits", 2, ("weight", *old, "pos_weight")
        ),
        "KLDivLoss": _Functional(f + "kl_div", 2, (*old, "log_target")),
        "SoftMarginLoss": _Functional(f + "soft_margin_loss", 2, old),
        "CosineEmbeddingLoss": _Functional(f + "cosine_embedding_loss", 3, ("margin", *old)),
        "MarginRankingLoss": _Functional(f + "margin_ranking_loss", 3, ("margin", *old)),
        "TripletMarginLoss": _Functional(
            f + "triplet_margin_loss", 3, ("margin", "p", "eps", "swap", *old)
        ),
        "CTCLoss": _Functional(f + "ctc_loss", 4, ("blank", "reduction", "zero_infinity")),
        "Softmax": _Functional(f + "softmax", 1, ("dim",), ("dim",)),
        "LogSoftmax": _Functional(f + "log_softmax", 1, ("dim",), ("dim",)),
        "GELU": _Functional(f + "gelu", 1, ("approximate",)),
        "LeakyReLU": _Functional(f + "leaky_relu", 1, ("negative_slope", "inplace")),
        "ELU": _Functional(f + "elu", 1, ("alpha", "inplace")),
        "Softplus": _Functional(f + "softplus", 1, ("beta", "threshold")),
        "GLU": _Functional(f + "glu", 1, ("dim",)),
        "Dropout": _Functional(f + "dropout", 1, ("p", "inplace")),
        "Sigmoid": _Functional("torch.sigmoid", 1),
        "Tanh": _Functional("torch.tanh", 1),
        "LogSigmoid": _Functional(f + "logsigmoid", 1),
        "Flatten": _Functional("torch.flatten", 1, ("start_dim", "end_dim"), added="start_dim=1"),
        "CosineSimilarity": _Functional(
            f + "cosine_similarity", 2, ("dim", "eps")
        ),
        "PixelShuffle": _Functional(f + "pixel_shuffle", 1, ("upscale_factor",)),
        "AvgPool1d": _Functional(f + "avg_pool1d", 1, pool),
        "AvgPool2d": _Functional(f + "avg_pool2d", 1, (*pool, "divisor_override")),
        "AvgPool3d": _Functional(f + "avg_pool3d", 1, (*pool, "divisor_override")),
        "Upsample": _Functional(
            f + "interpolate", 1, ("size", "scale_factor", "mode", "align_corners")
        ),
    }  # fmt: skip
    for cls in ("ReLU", "ReLU6", "SiLU", "Mish", "SELU", "Hardswish", "Hardsigmoid"):
        out[cls] = _Functional(f + cls.lower(), 1, ("inplace",))
    for n in (1, 2, 3):
        out[f"MaxPool{n}d"] = _Functional(f"{f}max_pool{n}d", 1, max_pool)
        out[f"AdaptiveAvgPool{n}d"] = _Functional(f"{f}adaptive_avg_pool{n}d", 1, ("output_size",))
    return out


_FUNCTIONALS = _functionals()
_TRANSFORMS = frozenset(
    "AmplitudeToDB AutoAugment CenterCrop ColorJitter Compose Fade FrequencyMasking GaussianBlur Grayscale "
    "GriffinLim InverseMelScale InverseSpectrogram LFCC MFCC MelScale MelSpectrogram MuLawDecoding "
    "MuLawEncoding Normalize Pad RandomAffine RandomCrop RandomErasing RandomHorizontalFlip "
    "RandomResizedCrop RandomRotation RandomVerticalFlip Resample Resize Spectrogram TimeMasking TimeStretch "
    "ToPILImage ToTensor Vad Vol".split()
)
_PACKAGES = re.compile(r"torch(?:audio|vision)\.transforms\.")
"""Where transforms of sound and of pictures come from."""
_NO_FIX = frozenset({"Upsample"})
"""The constructor converts what it is given, so that the function is not quite the same."""


class ModuleBuiltPerCall(Rule):
    """A loss or another module without parameters is built on every call, to be called once.

    ## What it does

    Finds `nn.CrossEntropyLoss()(x, y)`, `nn.Softmax(dim=-1)(x)`, `nn.Sequential(*layers)(x)` and the like in
    hot code, also through a local name that is only called, and transforms of torchaudio and torchvision
    (`Resample(44_100, 16_000)(wave)`, `MelSpectrogram(16_000).to(wave.device)(wave)`).

    A note where only callers that give an optional argument pay (`if labels is not None:`), and for a
    transform whose arguments may differ from call to call.

    ## Why it costs

    Building a module sets up a dozen dictionaries for parameters, buffers and hooks, and calling it goes
    through them all. The function in `torch.nn.functional` does the same work without.

    ## Example

    ```python
    def training_step(self, x, y):
        return nn.CrossEntropyLoss()(x, y)
    ```

    ## Instead

    ```python
    def training_step(self, x, y):
        return F.cross_entropy(x, y)
    ```

    Or build the module once, in `__init__`.

    ## Fix safety

    Safe: the module's own `forward` makes this very call with these arguments; only hooks registered for
    all modules no longer see it. None is offered for a module held by a name whose arguments may have other
    values when it is called, for `Softmax` without a dimension and for `Upsample`, which converts its
    arguments.
    """

    code = "DG704"
    name = "module-built-per-call"
    origin = "pytorch#27064"
    looks_for = Call(*_FUNCTIONALS, "Sequential", *_TRANSFORMS)
    fixes = "safe"

    def judge(self, node: cst.Call, place: Place) -> Finding | None:
        """A module of torch's own that only serves one call."""
        name = place.name(node)
        cls = name.rpartition(".")[2]
        if cls == "Sequential" and name.startswith("torch.nn.") and is_only_called(node, place):
            return place.finding(
                node,
                f"`{place.short(node)}` builds a module on every call only to call it; build it once in "
                "`__init__`, or call its parts one after the other",
            )
        if cls in _TRANSFORMS and _PACKAGES.match(name):
            return self._transform(node, place)
        if (
            not name.startswith("torch.nn.")
            or cls not in _FUNCTIONALS
            or not is_only_called(node, place)
        ):
            return None
        function = _FUNCTIONALS[cls]
        fix = self._fix(node, function, place) if cls not in _NO_FIX else None
        argument = only_where_given(place)
        calls = f"every call that gives `{argument}`" if argument else "every call"
        return place.finding(
            node,
            f"`{place.short(node)}` builds a module on {calls} only to call it; use "
            f"`{function.name}`, or build it once in `__init__`",
            certainty="note" if argument else "sure",
            fix=fix,
        )

    def _transform(self, node: cst.Call, place: Place) -> Finding | None:
        """A transform of sound or of pictures; a note where its arguments may differ from call to call."""
        if not is_only_called(_placed(node, place), place):
            return None
        same = all(_is_lasting(arg.value, place) for arg in node.args)
        return place.finding(
            node,
            f"`{place.short(node)}` builds a transform on every call only to call it; "
            + ("build it once, and keep it" if same else "keep one for each set of arguments"),
            certainty="sure" if same else "note",
        )

    def _fix(self, node: cst.Call, function: _Functional, place: Place) -> Fix | None:
        outer = call_of(node, place)
        held = assigned_once(node, place)
        calls = [outer] if outer is not None else _calls_of(held, place) if held is not None else []
        given = self._keywords(node.args, function, place)
        if not calls or given is None or (outer is None and not _lasting(node.args, place)):
            return None
        for call in calls:
            plain = all(a.keyword is None and not a.star for a in call.args)
            if not plain or len(call.args) != function.inputs or "#" in place.text(call):
                return None
            if call.args[-1].value.lpar:
                return None
        gone = place.without(place.statement) if outer is None else None
        if outer is None and gone is None:
            return None
        written, imports = _spelled(function, place)
        if not written:
            return None
        pairs: list[tuple[cst.CSTNode, str]] = [(call.func, written) for call in calls]
        if given:
            pairs += [further_arguments(call, given, place) for call in calls]
        return place.edits(
            pairs,
            safety="safe",
            message=f"call {function.name} directly",
            imports=imports,
            more=(gone,) if gone is not None else (),
        )

    def _keywords(
        self, args: Sequence[cst.Arg], function: _Functional, place: Place
    ) -> list[str] | None:
        """The constructor's arguments as keywords of the function."""
        out: dict[str, str] = {}
        for i, arg in enumerate(args):
            if arg.star:
                return None
            if arg.keyword is None and i >= len(function.params):
                return None
            name = function.params[i] if arg.keyword is None else arg.keyword.value
            if name not in function.params:
                return None
            out[name] = place.text(arg.value)
        if any(n not in out for n in function.needs):
            return None
        added = function.added.partition("=")
        if added[0] and added[0] not in out:
            out = {added[0]: added[2], **out}
        return [f"{name}={value}" for name, value in out.items()]


def _spelled(function: _Functional, place: Place) -> tuple[str, tuple[str, ...]]:
    """How the file writes the function, and what it has to import for it; empty where the usual name is
    taken."""
    written = place.spelling(function.name)
    if written:
        return written, ()
    if place.is_taken("F"):
        return "", ()
    return "F." + function.name.rpartition(".")[2], ("import torch.nn.functional as F",)


def _calls_of(name: cst.Name, place: Place) -> list[cst.Call]:
    """The calls of what a name holds; empty where one may be another's."""
    found = []
    for read in nodes.names_in(place.function):
        if read.value == name.value and read is not name:
            call = call_of(read, place)
            if call is None or call.lpar:
                return []
            found.append(call)
    inside = {id(n) for call in found for a in call.args for n in nodes.walk(a)}
    return [] if any(id(call) in inside for call in found) else found


def _lasting(args: Sequence[cst.Arg], place: Place) -> bool:
    """Whether arguments have the same values later in the function: constants, and names bound once."""
    return all(
        isinstance(a.value, cst.SimpleString | cst.Integer | cst.Float)
        or (isinstance(a.value, cst.Name) and place.assignments(a.value.value) <= 1)
        or (
            isinstance(a.value, cst.Attribute)
            and place.assignments(place.dotted(a.value).partition(".")[0]) <= 1
            and place.dotted(a.value).partition(".")[0] == place.self_name
        )
        for a in args
    )


def _placed(node: cst.Call, place: Place) -> cst.Call:
    """A new module, with the calls that only say where it is, and how it runs: `f(x).to(device).eval()`."""
    while (outer := method_call(node, place)) is not None and called_name(outer) in _PLACING:
        node = outer
    return node


_PLACING = frozenset({"cpu", "cuda", "double", "eval", "float", "half", "to"})


def _is_lasting(node: cst.BaseExpression, place: Place) -> bool:
    """Whether an argument of a transform is the same in every call: literals, settings, other transforms."""
    changed = changed_names(place)
    for part in nodes.walk(node):
        if isinstance(part, cst.Call) and place.last_name(part) not in _TRANSFORMS:
            return False
        if isinstance(part, cst.Attribute | cst.Name) and place.dotted(part) in changed:
            return False
        local = isinstance(part, cst.Name) and part.value != place.self_name
        if local and place.assignments(part.value):
            return False
    return True
