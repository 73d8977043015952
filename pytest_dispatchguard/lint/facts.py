"""What the scout finds in one file, and what the judge is told of the project: plain data that goes
through JSON unchanged, so that it can be cached and sent to worker processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Value = str
"""What is assigned to a name or attribute, as a word the judge can turn into a kind:
``call:torch.nn.Linear`` (dotted, aliases resolved), ``ann:Optional[torch.Tensor]`` (an annotation,
names resolved where possible), ``param`` and ``buffer`` (register_parameter, nn.Parameter;
register_buffer), ``int``, ``float``, ``bool``, ``number`` (what `.item()` gives), ``str``, ``none``,
``tuple``, ``list``, ``dict``, ``function``, ``built`` and ``tensor`` (what factories of torch make,
and methods and arithmetic of it, on the CPU or on some device),
``name:torch.nn.functional.relu`` (something imported or global, by its dotted name),
``cpu`` (what something else was brought to the CPU as: a tensor, or a module),
``item:self.mean`` (what a table written down holds, by the same names),
``default:'mean'`` (beside others: an option that is this, some text, number or flag, unless somebody asks for
another; ``default:1`` of any parameter that is 1), ``unknown``."""

SCRIPT = "<module>"
"""The name of what a script does at module level, where that is read as a function: what Python calls it."""


DEFAULT = "default:"
"""Before the default of an option."""
ONE: Value = DEFAULT + "1"
"""The word for one that is 1."""
SET_ANEW: Value = DEFAULT + "?"
"""The word for one that an attribute does not keep: it is assigned in more than one place."""


def default_of(values: Iterable[Value]) -> str:
    """The default of the option that an attribute keeps, as written; empty where it keeps none, or more. What
    is 1 unless somebody asks for more, such as the number of processes, is more as a rule."""
    found = [value for value in values if value.startswith(DEFAULT)]
    return found[0].removeprefix(DEFAULT) if len(found) == 1 and found != [ONE] else ""


SIZED_FACTORIES = frozenset(
    "zeros ones empty full rand randint randn eye arange linspace logspace pad".split()
)
"""Functions of torch that take sizes or bounds."""
SIZED_METHODS = frozenset(
    "expand view reshape repeat new_zeros new_ones new_empty new_full narrow select roll split "
    "unflatten tile".split()
)
"""Methods of tensors that do."""
SIZED_CALLS = SIZED_FACTORIES | SIZED_METHODS | {"range", "slice", "Size"}
"""Calls that take sizes or bounds, where Python needs numbers."""


COPYING_CALLS = frozenset({"tuple", "list", "set", "frozenset"})
"""Builtins that copy what they are given."""
NUMBER_CALLS = frozenset({"int", "float", "complex"})
"""Builtins that make a number of what they are given."""
COMPARING_CALLS = frozenset({"max", "min", "sorted"})
"""Builtins that compare what they are given, or what it holds."""


CPU = "cpu"
"""The word for an argument, or a value, that is surely on the CPU."""
CPU_ATTRIBUTES = frozenset({"batch_sizes"})
"""Attributes that are tensors on the CPU wherever the others of their owner are: of a packed sequence."""
HELPER_CALL = "helper-call"
"""The token of what functions hold that call helpers which read what they are given."""
PART = "[]"
"""Behind the name of a call in `FunctionFact.hinges`: a part of what it gives."""
UNNAMED = "?"
"""In `CallFact.name`, what a method is called on that has no name: the result of a call, an element."""
_SHORT_NAME = 8


MODULE_METHODS = frozenset(
    "act decode dequantize embed encode generate infer inference loss log_prob predict prefill quantize "
    "reconstruct render sample".split()
)
"""Methods that modules have beside `forward`, by the names that all libraries give them."""


def is_distinctive(method: str) -> bool:
    """Whether two definitions hardly share the name of a method by chance: a long one, of several words."""
    return len(method) > _SHORT_NAME and "_" in method.strip("_")


def is_telling(method: str) -> bool:
    """Whether the name of a method tells of which class it may be: no other is called so, or it is one that
    modules have."""
    return is_distinctive(method) or method in MODULE_METHODS


SOMETHING = "..."
"""The word for one that is not None, whatever it is."""
REQUIRED = "!"
"""The default of a parameter that has none, and is compared with text."""


@dataclass(slots=True)
class CallFact:
    """One call (or property read, or function passed on) that may lead to another function."""

    name: str
    """The callee as written, dotted: ``self.helper``, ``F.relu``, ``super().forward``,
    ``tree.flatten``; ``?.update_state`` of ``made().update_state()``, where the name is distinctive."""
    line: int
    loop: bool = False
    how: str = "call"
    """call, new-scope (`with f():`), passed (given to another call), read (maybe a property),
    decorated, returned, hook (handed to `register_forward_hook` and the like), hook-factory (what it gives
    is handed there)."""
    given: list[str] = field(default_factory=list)
    """The arguments of its calls, each kind of call once, parted by commas: literals as written, ``=x`` for a
    parameter handed on, ``~x`` for a tensor that is where the parameter is, ``cpu`` for one on the CPU,
    ``...`` for what is surely not None, ``*`` for unpacked ones, ``?`` for all else:
    ``?,None,mask==mask``."""
    under: list[str] = field(default_factory=list)
    """Conditions on parameters with defaults that all its calls stand under: ``+mask is None`` where it
    holds, ``-return_all`` where it does not."""


@dataclass(slots=True)
class FunctionFact:
    """One function or method."""

    name: str
    """Qualified: ``Dense.call``, ``factory.<locals>.wrapper``."""
    line: int
    """Of `def`, not of its decorators."""
    end_line: int
    start_byte: int
    """Of the whole definition, decorators included, in the UTF-8 bytes of the decoded text."""
    end_byte: int
    params: list[str] = field(default_factory=list)
    """As written, stars included: ``self``, ``x``, ``*args``, ``**kwargs``."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Of its parameters, those whose default is a plain literal, as written: ``None``, ``'mean'``; of those
    that have none, the ones that are surely tensors, by their annotation (``...``), or are compared with
    text (``!``)."""
    decorators: list[str] = field(default_factory=list)
    calls: list[CallFact] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)
    """Tokens that rules look for (see `rule.Look`): ``call:item``, ``truth``, ``with`` …,
    sorted."""
    hinges: dict[str, list[str]] = field(default_factory=dict)
    """Of tokens that are not among its looks: calls of which one has to give a tensor for the token to count,
    as `Brief.callees` names them."""
    tensors: list[str] = field(default_factory=list)
    """Names used as only a tensor can be (``x.unsqueeze(0)``, ``torch.relu(x)``), and never tested
    by isinstance or is_tensor."""
    returns: Value = "unknown"
    """The return annotation, or what all return statements agree on."""
    returns_function: bool = False
    """Whether it returns a function made inside it: a wrapper factory, or a decorator."""
    training_loop: bool = False
    """Whether a loop in it runs backward and an optimizer's step."""
    training_step: bool = False
    """Whether it runs backward and an optimizer's step, neither of them in a loop."""
    feeds_model: bool = False
    """Whether a loop in it calls a module, batch by batch or step by step."""
    over_loader: bool = False
    """Whether it is called as a step is, and a loop in it goes through a whole data loader: it runs once an
    epoch."""
    takes_batch: bool = False
    """Whether it asks an iterator over batches, which it is given, for the next one."""
    reads: bool = False
    """Whether it is a short helper that brings what it is given to Python, or to the CPU."""
    takes_tensors: bool = False
    """Whether it works on tensors that it is given, by its signature, its documentation or what it does."""
    on_cpu: bool = False
    """Whether all tensors it returns are surely on the CPU."""
    yields: bool = False
    mark: str = ""
    """``hot`` or ``cold``: a `# dispatchguard:` comment on it."""
    locals: dict[str, list[Value]] = field(default_factory=dict)
    """What the names at the root of its calls were bound to: ``layer`` -> ``call:pkg.Dense``,
    ``fn`` -> ``name:self.call``, an annotated parameter -> ``ann:pkg.Dense``."""


@dataclass(slots=True)
class ClassFact:
    """One class."""

    name: str
    line: int
    bases: list[str] = field(default_factory=list)
    """As written, dotted; ``Generic[T]`` is ``Generic``."""
    attrs: dict[str, list[Value]] = field(default_factory=dict)
    """What its methods and its body assign to ``self.x``, once per distinct value."""
    decorators: list[str] = field(default_factory=list)
    mark: str = ""


@dataclass(slots=True)
class FileFacts:
    """One file, as the scout saw it."""

    imports: list[tuple[str, str]] = field(default_factory=list)
    """(local name, dotted target): ``("F", "torch.nn.functional")``; ``("*", "pkg.mod")`` for star
    imports; relative ones already resolved against the file's own module."""
    assigns: dict[str, list[Value]] = field(default_factory=dict)
    """Module-level names: ``call:torch.tensor``, ``name:other.thing`` for aliases, literals."""
    functions: list[FunctionFact] = field(default_factory=list)
    classes: list[ClassFact] = field(default_factory=list)
    error: tuple[int, int, str] | None = None
    """Line, column and message, where the file does not parse."""


@dataclass(slots=True)
class HotFact:
    """Why a function is hot: `model.Hot` without its types, ready for JSON."""

    root: str
    path: list[str]
    reason: str
    loop: bool = False
    per: str = "call"
    only_loops: bool = False
    """Only the loops inside it are hot (training loops, a pipeline's `__call__`), not the
    function."""
    seen: float | None = None
    """Calls per call of the root, where a profile was recorded."""
    users: bool = False
    """Whether nothing hot in the project calls the root: users of the library do, or a decorator tells."""


@dataclass(slots=True)
class ClassBrief:
    """A class of the file, with what it inherits."""

    is_module: bool = False
    """A torch.nn.Module (or a Keras layer, a torchmetrics metric …), as far as bases can be
    resolved."""
    ancestors: list[str] = field(default_factory=list)
    """Dotted names of all known ancestors, project and library, nearest first."""
    attrs: dict[str, list[Value]] = field(default_factory=dict)
    """``self.x`` over the whole inheritance, names resolved."""
    methods: dict[str, str] = field(default_factory=dict)
    """Method name to ``dotted.module:Class.method`` over the whole inheritance inside the
    project."""
    properties: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CalleeBrief:
    """A project function that the file's hot functions call."""

    target: str
    """``dotted.module:Class.method``."""
    returns: Value = "unknown"
    decorators: list[str] = field(default_factory=list)
    """Dotted, aliases resolved: ``contextlib.contextmanager``, ``functools.lru_cache``."""
    returns_function: bool = False
    yields: bool = False
    on_cpu: bool = False
    reads: bool = False
    """Whether it brings what it is given to Python, or to the CPU."""


@dataclass(slots=True)
class Brief:
    """All that judging one file needs to know of the project, and nothing else: same text, same
    brief, same rules give the same findings."""

    path: str
    module: str
    names: dict[str, list[str]] = field(default_factory=dict)
    """Module-level names of the file to the dotted names they may stand for (imports followed
    through re-exports to where the thing is defined when it is the project's own; the nearest name
    first)."""
    globals: dict[str, list[Value]] = field(default_factory=dict)
    """Module-level assignments, names resolved."""
    hot: dict[str, HotFact] = field(default_factory=dict)
    """Qualified name to the reason."""
    classes: dict[str, ClassBrief] = field(default_factory=dict)
    callees: dict[str, CalleeBrief] = field(default_factory=dict)
    """By the name as written in the file: ``tree.flatten``, ``self.helper`` is under
    ``Class.self.helper``."""
    tensors: dict[str, list[str]] = field(default_factory=dict)
    """Function to the names that are surely tensors by their use."""
    given: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Function to those of its parameters that hot code gives, or leaves, few literals, and to these."""
    on_cpu: dict[str, list[str]] = field(default_factory=dict)
    """Function to those of its parameters that hot code only gives tensors on the CPU."""
    seen: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Function to parameters, and the kinds of values that these were seen with when they were recorded."""
    fields: dict[str, dict[str, list[Value]]] = field(default_factory=dict)
    """Dotted names of project classes that the file may have instances of to those attributes that hold
    tensors, with what is assigned to them: fields of dataclasses, parameters of modules."""
    modules: dict[str, Value] = field(default_factory=dict)
    """Dotted names of project classes that are modules, of those that this brief names, to what their
    `forward` returns."""
    imports: list[str] = field(default_factory=list)
    """Top-level packages the file imports: torch, numpy, jax …"""
