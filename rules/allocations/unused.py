"""DG520: results that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import libcst as cst

from pytest_dispatchguard import Assignment, Call, Finding, Place, Rule, nodes

from ..source_text import loses_a_name
from ..syntax import bound_names
from .data import COMPUTES, FACTORIES, LIKE, RANDOM

_COMPUTES = COMPUTES | frozenset(
    "clone gather index_select masked_fill relu repeat scatter".split()
)
"""Functions and methods that launch something, and change nothing."""
_MAKES = frozenset(
    last
    for last in (name.rpartition(".")[2] for name in FACTORIES | LIKE)
    if last.removesuffix("_like") not in RANDOM
)
_VIEWS = frozenset(
    "bool contiguous detach dim expand flatten float half int long numel permute reshape size squeeze t to "
    "transpose type_as unsqueeze view".split()
)
"""Methods that change nothing either."""
_PARTS = ("torch", "torch.fft", "torch.linalg", "torch.nn.functional", "torch.special")
_OF_SEQUENCES = frozenset({"pack_padded_sequence", "pad_packed_sequence", "pad_sequence"})
"""Functions of `torch.nn.utils.rnn`."""
_LOOKED_FOR = _COMPUTES | _MAKES | _OF_SEQUENCES
_LOOKING = frozenset({"eval", "exec", "locals", "vars"})
"""What reads names that are not written down."""

_Fate = Literal["read", "lost", "open"]
"""What becomes of a value on all paths through some statements: it may be read, surely is not, or is still
there behind them."""


class ResultNeverRead(Rule):
    """A tensor is computed that nobody reads.

    ## What it does

    Finds assignments in hot code of what torch computes, after which, on every path, the name gets another
    value or the function ends before anybody reads it. Names that begin with an underscore are left alone,
    and so is what draws random numbers, and code where a function inside reads the name.

    ## Why it costs

    Nobody needs the result, but its kernels are launched, its memory is allocated, and autograd records it.

    ## Example

    ```python
    scores = torch.matmul(q, k.transpose(-1, -2))
    scores = torch.einsum("bqd,bkd->bqk", q, k) * self.scale
    ```

    ## Instead

    ```python
    scores = torch.einsum("bqd,bkd->bqk", q, k) * self.scale
    ```

    ## Fix safety

    No fix: the line may have been meant to do something.
    """

    code = "DG520"
    name = "result-never-read"
    also_compiled = False
    origin = "fairseq2#shaw-attention"
    looks_for = Assignment(having=Call(*_LOOKED_FOR, place="torch")).where(
        partial(loses_a_name, made_by=_LOOKED_FOR)
    )

    def judge(
        self, node: cst.Assign | cst.AnnAssign | cst.AugAssign, place: Place
    ) -> Finding | None:
        """An assignment of what is computed to names that are lost."""
        if isinstance(node, cst.AugAssign) or node.value is None or place.scene.tries:
            return None
        computed = place.on_device(node.value) and _launches(node.value, place)
        after = _behind(place)
        if after is None or not (computed or _is_of_sequences(node.value, place)):
            return None
        bound = (
            list(nodes.bound_by(node))
            if isinstance(node, cst.AnnAssign)
            else [one for target in node.targets for one in nodes.bound_by(target)]
        )
        names = [one.value for one in bound if isinstance(one, cst.Name)]
        told = [name for name in names if not name.startswith("_")]
        if len(names) < len(bound) or not told or _is_looked_at(set(names), place):
            return None
        fates = {_fate(name, after) for name in names if name != "_"}
        at_the_end = place.block == tuple(place.function.body.body)
        if "read" in fates or ("open" in fates and not at_the_end):
            return None
        again = "open" not in fates and bound_names(after).issuperset(told)
        shown = " and ".join(f"`{name}`" for name in told)
        if len(told) > 1:
            lost = "and nobody reads them"
        else:
            lost = (
                "which gets another value before anybody reads it"
                if again
                else "which nobody reads"
            )
        return place.finding(
            node.value,
            f"`{place.short(node.value)}` is computed for {shown}, {lost}; leave it out",
        )


def _behind(place: Place) -> Sequence[cst.CSTNode] | None:
    """The statements that follow in the block; None where others may follow on the same line."""
    line = place.statement
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) > 1:
        return None
    for i, statement in enumerate(place.block):
        if statement is line:
            return place.block[i + 1 :]
    return None


def _launches(value: cst.BaseExpression, place: Place) -> bool:
    """Whether an expression launches something, and does nothing else."""
    launched = False
    for part in nodes.walk(value):
        if isinstance(part, cst.Await | cst.Yield | cst.NamedExpr | cst.Lambda | cst.BaseComp):
            return False
        if isinstance(part, cst.Call):
            if not _is_pure(part, place):
                return False
            launched = launched or place.last_name(part) in _COMPUTES | _MAKES
    return launched


def _is_of_sequences(value: cst.BaseExpression, place: Place) -> bool:
    """Whether a value is what torch packs, or unpacks, of sequences."""
    if not isinstance(value, cst.Call):
        return False
    owner, _, last = place.name(value).rpartition(".")
    return owner == "torch.nn.utils.rnn" and last in _OF_SEQUENCES


def _is_pure(call: cst.Call, place: Place) -> bool:
    if any(a.keyword is not None and a.keyword.value in ("out", "inplace") for a in call.args):
        return False
    if place.last_name(call) == "relu" and len(call.args) > 1:
        return False  # perhaps in place
    torch, _, last = place.name(call).rpartition(".")
    known = _COMPUTES | _MAKES | _VIEWS
    if torch in _PARTS:
        return last in known
    receiver = place.receiver(call)
    if receiver is None:
        return last in ("float", "int", "len")
    return place.last_name(call) in known and place.is_tensor(receiver)


def _is_looked_at(names: set[str], place: Place) -> bool:
    """Whether something else than the statements of the function may read its names, or know when."""
    seen = place.once(("names looked at", id(place.function)), lambda: _looked_at(place.function))
    return seen is None or not names.isdisjoint(seen)


def _looked_at(function: cst.FunctionDef) -> frozenset[str] | None:
    """The names that functions and classes inside a function use; None where any may be."""
    seen: set[str] = set()
    for part in nodes.walk(function.body):
        kind = type(part)
        if kind in _INSIDE:
            seen.update(name.value for name in nodes.names_in(part))
        elif kind in (cst.Global, cst.Nonlocal) or (
            isinstance(part, cst.Call)
            and isinstance(part.func, cst.Name)
            and part.func.value in _LOOKING
        ):
            return None
    return frozenset(seen)


_INSIDE = frozenset({cst.FunctionDef, cst.Lambda, cst.ClassDef})


def _fate(name: str, statements: Sequence[cst.CSTNode]) -> _Fate:
    """What becomes of the value of a name in statements that follow each other."""
    for statement in statements:
        fate = _fate_in(name, statement)
        if fate != "open":
            return fate
    return "open"


def _fate_in(name: str, statement: cst.CSTNode) -> _Fate:
    if isinstance(statement, cst.SimpleStatementLine):
        for small in statement.body:
            fate = _fate_in_line(name, small)
            if fate != "open":
                return fate
        return "open"
    if isinstance(statement, cst.If):
        return _fate_in_branches(name, statement)
    # Of a loop or a context nobody knows how far it comes.
    return "read" if _mentions(name, statement) else "open"


def _fate_in_branches(name: str, statement: cst.If) -> _Fate:
    """What becomes of a value where one of several branches is taken."""
    fates: list[_Fate] = []
    branch: cst.If | cst.Else | None = statement
    while isinstance(branch, cst.If):
        if _mentions(name, branch.test):
            return "read"
        fates.append(_fate(name, branch.body.body))
        branch = branch.orelse
    fates.append(_fate(name, branch.body.body) if branch is not None else "open")
    if "read" in fates:
        return "read"
    return "open" if "open" in fates else "lost"


def _fate_in_line(name: str, statement: cst.CSTNode) -> _Fate:
    if isinstance(statement, cst.Break | cst.Continue):
        return "read"  # elsewhere, perhaps
    if isinstance(statement, cst.Del | cst.AugAssign):
        return "read" if _mentions(name, statement) else "open"
    bound = [one for part in _targets(statement) for one in nodes.bound_by(part)]
    plain = sum(isinstance(one, cst.Name) and one.value == name for one in bound)
    mentions = sum(one.value == name for one in nodes.names_in(statement))
    if mentions > plain:
        return "read"
    if plain or isinstance(statement, cst.Return | cst.Raise):
        return "lost"
    return "open"


def _targets(statement: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """What assigns, in a simple statement."""
    if isinstance(statement, cst.Assign):
        yield from statement.targets
    elif isinstance(statement, cst.AnnAssign) and statement.value is not None:
        yield statement


def _mentions(name: str, node: cst.CSTNode) -> bool:
    return any(one.value == name for one in nodes.names_in(node))
