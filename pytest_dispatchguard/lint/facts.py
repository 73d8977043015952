"""What the scout finds in one file, and what the judge is told of the project: plain data that goes
through JSON unchanged, so that it can be cached and sent to worker processes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from typing import Any

Value = str
"""What is assigned to a name or attribute, as a word the judge can turn into a kind: ``call:torch.nn.Linear``
(dotted, aliases resolved), ``ann:Optional[torch.Tensor]`` (an annotation, names resolved where possible),
``param`` and ``buffer`` (register_parameter, nn.Parameter; register_buffer), ``int``, ``float``, ``bool``,
``str``, ``none``, ``tuple``, ``list``, ``dict``, ``function``, ``name:torch.nn.functional.relu`` (something
imported or global, by its dotted name), ``unknown``."""


@dataclass(slots=True)
class CallFact:
    """One call (or property read, or function passed on) that may lead to another function."""

    name: str
    """The callee as written, dotted: ``self.helper``, ``F.relu``, ``super().forward``, ``tree.flatten``."""
    line: int
    loop: bool = False
    how: str = "call"
    """call, new-scope (`with f():`), passed (given to another call), read (maybe a property), decorated,
    returned, hook (handed to `register_forward_hook` and the like)."""


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
    decorators: list[str] = field(default_factory=list)
    calls: list[CallFact] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)
    """Tokens that rules look for (see `rule.Look`): ``call:item``, ``truth``, ``with`` …, sorted."""
    tensors: list[str] = field(default_factory=list)
    """Names used as only a tensor can be (``x.unsqueeze(0)``, ``torch.relu(x)``), and never tested by
    isinstance or is_tensor."""
    returns: Value = "unknown"
    """The return annotation, or what all return statements agree on."""
    returns_function: bool = False
    """Whether it returns a function made inside it: a wrapper factory, or a decorator."""
    training_loop: bool = False
    """Whether a loop in it runs backward and an optimizer's step."""
    yields: bool = False
    mark: str = ""
    """``hot`` or ``cold``: a `# dispatchguard:` comment on it."""
    locals: dict[str, list[Value]] = field(default_factory=dict)
    """What the names at the root of its calls were bound to: ``layer`` -> ``call:pkg.Dense``, ``fn`` ->
    ``name:self.call``, an annotated parameter -> ``ann:pkg.Dense``."""


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
    """(local name, dotted target): ``("F", "torch.nn.functional")``; ``("*", "pkg.mod")`` for star imports;
    relative ones already resolved against the file's own module."""
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
    """Only the loops inside it are hot (training loops, a pipeline's `__call__`), not the function."""


@dataclass(slots=True)
class ClassBrief:
    """A class of the file, with what it inherits."""

    is_module: bool = False
    """A torch.nn.Module (or a Keras layer, a torchmetrics metric …), as far as bases can be resolved."""
    ancestors: list[str] = field(default_factory=list)
    """Dotted names of all known ancestors, project and library, nearest first."""
    attrs: dict[str, list[Value]] = field(default_factory=dict)
    """``self.x`` over the whole inheritance, names resolved."""
    methods: dict[str, str] = field(default_factory=dict)
    """Method name to ``dotted.module:Class.method`` over the whole inheritance inside the project."""
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


@dataclass(slots=True)
class Brief:
    """All that judging one file needs to know of the project, and nothing else: same text, same brief,
    same rules give the same findings."""

    path: str
    module: str
    names: dict[str, list[str]] = field(default_factory=dict)
    """Module-level names of the file to the dotted names they may stand for (imports followed through
    re-exports to where the thing is defined when it is the project's own; the nearest name first)."""
    globals: dict[str, list[Value]] = field(default_factory=dict)
    """Module-level assignments, names resolved."""
    hot: dict[str, HotFact] = field(default_factory=dict)
    """Qualified name to the reason."""
    classes: dict[str, ClassBrief] = field(default_factory=dict)
    callees: dict[str, CalleeBrief] = field(default_factory=dict)
    """By the name as written in the file: ``tree.flatten``, ``self.helper`` is under ``Class.self.helper``."""
    tensors: dict[str, list[str]] = field(default_factory=dict)
    """Function to the names that are surely tensors by their use."""
    modules: list[str] = field(default_factory=list)
    """Dotted names of project classes that are modules, of those that this brief names."""
    imports: list[str] = field(default_factory=list)
    """Top-level packages the file imports: torch, numpy, jax …"""


# --- JSON: rows of plain lists, which read back faster than dicts ----------------------------------------


def _function_row(fact: FunctionFact) -> list[Any]:
    flags = fact.returns_function | fact.training_loop << 1 | fact.yields << 2
    return [
        fact.name,
        fact.line,
        fact.end_line,
        fact.start_byte,
        fact.end_byte,
        fact.params,
        fact.decorators,
        [[call.name, call.line, int(call.loop), call.how] for call in fact.calls],
        fact.looks,
        fact.tensors,
        fact.returns,
        flags,
        fact.mark,
        fact.locals,
    ]


def _function(row: list[Any]) -> FunctionFact:
    (
        name,
        line,
        end,
        start_byte,
        end_byte,
        params,
        decorators,
        calls,
        looks,
        tensors,
        returns,
        flags,
        mark,
        local,
    ) = row
    return FunctionFact(
        name,
        line,
        end,
        start_byte,
        end_byte,
        params,
        decorators,
        [CallFact(called, at, bool(loop), how) for called, at, loop, how in calls],
        looks,
        tensors,
        returns,
        bool(flags & 1),
        bool(flags & 2),
        bool(flags & 4),
        mark,
        local,
    )


def dumps(facts: FileFacts) -> str:
    """The facts as one line of JSON."""
    rows = [
        facts.imports,
        facts.assigns,
        [_function_row(function) for function in facts.functions],
        [[c.name, c.line, c.bases, c.attrs, c.decorators, c.mark] for c in facts.classes],
        facts.error,
    ]
    return json.dumps(rows, separators=(",", ":"))


def loads(text: str) -> FileFacts:
    """The facts that `dumps` wrote."""
    imports, assigns, functions, classes, error = json.loads(text)
    return FileFacts(
        [(name, target) for name, target in imports],
        assigns,
        [_function(row) for row in functions],
        [ClassFact(*row) for row in classes],
        (error[0], error[1], error[2]) if error else None,
    )


def shape(facts: FileFacts) -> str:
    """A hash of all in the facts that hotness and briefs depend on: positions and looks are left out, so that most
    edits of a file leave the rest of the project as it was."""
    rows = [
        facts.imports,
        facts.assigns,
        [
            [
                f.name,
                f.params,
                f.decorators,
                sorted([c.name, int(c.loop), c.how] for c in f.calls),
                f.tensors,
                f.returns,
                f.returns_function,
                f.training_loop,
                f.yields,
                f.mark,
                f.locals,
            ]
            for f in facts.functions
        ],
        [[c.name, c.bases, c.attrs, c.decorators, c.mark] for c in facts.classes],
    ]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()[:32]


def dumps_brief(brief: Brief) -> str:
    """The brief as one line of JSON, the same text for the same brief."""
    return json.dumps(brief, separators=(",", ":"), sort_keys=True, default=_by_field)


def _by_field(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in _FIELDS[type(value)]}


_FIELDS = {
    kind: tuple(f.name for f in fields(kind)) for kind in (Brief, HotFact, ClassBrief, CalleeBrief)
}


def loads_brief(text: str) -> Brief:
    """The brief that `dumps_brief` wrote."""
    row = json.loads(text)
    row["hot"] = {name: HotFact(**fact) for name, fact in row["hot"].items()}
    row["classes"] = {name: ClassBrief(**class_) for name, class_ in row["classes"].items()}
    row["callees"] = {name: CalleeBrief(**callee) for name, callee in row["callees"].items()}
    return Brief(**row)
